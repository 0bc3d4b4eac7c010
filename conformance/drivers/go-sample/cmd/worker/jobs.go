package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"gosample/client"
	"gosample/payload"
	"gosample/redis"
	"gosample/worker"
)

// suite is the jobs that the conformance suite asks for. They report to another Redis.
type suite struct {
	control *redis.Pool
	run     string
	client  *client.Client
}

// JobwireError is the error of failing jobs.
type JobwireError struct {
	message string
	lines   []string
}

func (e *JobwireError) Error() string       { return e.message }
func (e *JobwireError) Backtrace() []string { return e.lines }

func failing(message string) error {
	return &JobwireError{message, strings.Split(strings.TrimSpace(string(debug.Stack())), "\n")}
}

func (s *suite) definitions() map[string]*worker.Definition {
	delay := s.job(func(context.Context, *worker.Job) error { return failing("not yet") })
	delay.Delay = wish
	return map[string]*worker.Definition{
		"JobwireEcho": s.job(func(context.Context, *worker.Job) error { return nil }),
		"JobwireFail": s.job(func(_ context.Context, j *worker.Job) error { return failing(text(j, 0)) }),
		"JobwireFlaky": s.job(func(_ context.Context, j *worker.Job) error {
			count, err := s.control.Do("INCR", s.key(fmt.Sprintf("n:%v", j.JID)))
			if err != nil {
				return err
			}
			if times := j.Args[0].(payload.Number).Float(); float64(count.(int64)) <= times {
				return failing(fmt.Sprintf("time %d of %v", count, times))
			}
			return nil
		}),
		"JobwireGate": s.job(func(ctx context.Context, j *worker.Job) error { return s.pass(ctx, text(j, 0)) }),
		"JobwireSpawn": s.job(func(_ context.Context, j *worker.Job) error {
			item := client.Item{}
			for _, member := range j.Args[0].(payload.Object) {
				item[member.Name] = member.Value
			}
			_, err := s.client.Push(item)
			return err
		}),
		"JobwireSpoil": s.job(func(_ context.Context, j *worker.Job) error {
			clear(j.Args[0].([]any))
			j.Args[0] = []any{}
			return failing("spoiled")
		}),
		"JobwireMessage": s.job(func(_ context.Context, j *worker.Job) error {
			if text(j, 0) == "none" {
				return failing("")
			}
			return failing("a\xff\xfeb") // as the bytes of a library that knows no encodings
		}),
		"JobwireDelay": delay, "JobwireLast": s.last(),
	}
}

func (s *suite) key(name string) string { return "jw:" + s.run + ":" + name }

// job reports the begin and the end of a job.
func (s *suite) job(work func(context.Context, *worker.Job) error) *worker.Definition {
	return &worker.Definition{Run: func(ctx context.Context, j *worker.Job) error {
		args := j.Args
		if args == nil {
			args = []any{}
		}
		s.report(payload.Object{{Name: "ev", Value: "begin"}, {Name: "jid", Value: j.JID}, {Name: "args", Value: args}})
		err := work(ctx, j)
		s.report(payload.Object{{Name: "ev", Value: "end"}, {Name: "jid", Value: j.JID}, {Name: "ok", Value: err == nil}})
		return err
	}}
}

func (s *suite) report(event payload.Object) {
	line, err := payload.Encode(event, "")
	if err == nil {
		_, err = s.control.Do("RPUSH", s.key("ev"), line)
	}
	if err != nil {
		panic(err)
	}
}

// pass waits until the suite opens a gate.
func (s *suite) pass(ctx context.Context, name string) error {
	return s.control.With(func(c *redis.Conn) error {
		defer context.AfterFunc(ctx, c.Close)()
		_, err := c.DoWithin(24*time.Hour, "BLPOP", s.key("gate:"+name), "0")
		return err
	})
}

func text(j *worker.Job, place int) string {
	if place < len(j.Args) {
		if text, ok := j.Args[place].(string); ok {
			return text
		}
	}
	return ""
}
