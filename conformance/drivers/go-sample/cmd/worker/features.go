package main

import (
	"context"
	"errors"

	"gosample/payload"
	"gosample/worker"
)

// skip does not call on for a job whose only argument is "skip". A server middleware.
func skip(j *worker.Job, next func() error) error {
	if len(j.Args) == 1 && j.Args[0] == "skip" {
		return nil
	}
	return next()
}

// wish answers with the first argument of a job. A hook of a definition.
func wish(job payload.Object, _ int64, _ error) (worker.Wish, error) {
	args, _ := job.Get("args")
	switch wish := args.([]any)[0].(type) {
	case payload.Number:
		return worker.Wish{Seconds: wish.Float()}, nil
	case string:
		switch wish {
		case "discard":
			return worker.Wish{Discard: true}, nil
		case "kill":
			return worker.Wish{Kill: true}, nil
		}
		return worker.Wish{}, errors.New(wish)
	}
	return worker.Wish{}, nil
}

// last is the definition of a job that reports its end.
func (s *suite) last() *worker.Definition {
	definition := s.job(func(_ context.Context, j *worker.Job) error { return failing(text(j, 0)) })
	definition.Exhausted = func(job payload.Object, _ error) error {
		s.tell("exhausted", job)
		return errors.New("the exhausted hook breaks")
	}
	return definition
}

// deaths are two death handlers, of which the first breaks.
func (s *suite) deaths() []worker.DeathHandler {
	tell := func(job payload.Object, _ error) error {
		s.tell("death", job)
		return nil
	}
	return []worker.DeathHandler{
		func(job payload.Object, err error) error {
			return errors.Join(tell(job, err), errors.New("a death handler breaks"))
		},
		tell,
	}
}

func (s *suite) tell(event string, job payload.Object) {
	jid, _ := job.Get("jid")
	s.report(payload.Object{{Name: "ev", Value: event}, {Name: "jid", Value: jid}})
}
