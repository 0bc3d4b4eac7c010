package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"gosample/payload"
)

func draw(below float64) float64 { return math.Floor(rand.Float64() * below) }

// ClassError is an error whose class has another name than its type in Go.
type ClassError struct {
	Class, Message string
	Lines          []string
}

func (e *ClassError) Error() string       { return e.Message }
func (e *ClassError) Backtrace() []string { return e.Lines }

// execute runs one job that this worker holds, and stores its outcome.
func (w *Worker) execute(job *held) {
	decoded, err := payload.Decode(job.text)
	if err != nil {
		w.unreadable(job, err)
		return
	}
	if w.store.poisoned(job, decoded) {
		return
	}
	if !w.begin(job) {
		w.persist("put back", func(again bool) error { return w.store.putBack([]*held{job}, false, again) })
		return
	}
	class, _ := decoded.Get("class")
	name, _ := class.(string)
	definition := w.Definitions[name]
	failed := w.run(job, decoded, definition)
	if !w.finish(job) {
		return // the stop has put it back
	}
	if failed == nil {
		w.persist("done", func(again bool) error { return w.store.done(job, false, again) })
	} else {
		w.fail(job, definition, *failed)
	}
	w.settled(job)
}

// unreadable moves a text that is not a payload out of the way. [EXEC-3] [EXEC-4]
func (w *Worker) unreadable(job *held, err error) {
	set := "dead"
	if errors.Is(err, payload.ErrNotObject) {
		set = "jobwire:unreadable"
	}
	w.logf("a payload in %q: %v; moved to %s", job.queue, err, set)
	w.persist("kill", func(again bool) error {
		return w.store.kill(job, set, job.text, payload.Seconds(time.Now()), false, again)
	})
}

// run calls the code of the job.
func (w *Worker) run(job *held, decoded payload.Object, definition *Definition) (failed *failure) {
	defer func() {
		if problem := recover(); problem != nil {
			failed = &failure{
				err: fmt.Errorf("panic: %v", problem), class: "panic", message: fmt.Sprint(problem),
				backtrace: strings.Split(strings.TrimSpace(string(debug.Stack())), "\n"),
			}
		}
	}()
	code, err := w.prepare(decoded, definition)
	if err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w.mutex.Lock()
		job.cancel = cancel
		w.mutex.Unlock()
		next := func() error { return definition.Run(ctx, code) }
		for _, middleware := range w.Middleware {
			inner := next
			next = func() error { return middleware(code, inner) }
		}
		err = next()
	}
	if err != nil {
		described := describe(err)
		if named, ok := err.(*ClassError); ok {
			described.class = named.Class
		}
		return &described
	}
	return nil
}

// prepare refuses jobs that cannot be run. [EXEC-2] [EXEC-7] [EXEC-13]
func (w *Worker) prepare(decoded payload.Object, definition *Definition) (*Job, error) {
	if definition == nil {
		class, _ := decoded.Get("class")
		return nil, &ClassError{Class: "UnknownClass", Message: fmt.Sprintf("no job is registered for class %.200v", class)}
	}
	for _, field := range []string{"encrypt", "compressed"} {
		if value, _ := decoded.Get(field); value != nil && value != false {
			return nil, &ClassError{Class: "EncodedArguments", Message: "the arguments are encoded: " + field}
		}
	}
	value, _ := decoded.Get("args")
	args, ok := value.([]any)
	if value != nil && !ok {
		return nil, &ClassError{Class: "ArgumentError", Message: "args is not an array"}
	}
	jid, _ := decoded.Get("jid")
	return &Job{JID: jid, Args: args}, nil
}

// fail stores the outcome of a job that failed.
func (w *Worker) fail(job *held, definition *Definition, failed failure) {
	fresh, _ := payload.Decode(job.text) // the job may have changed its arguments [EXEC-5]
	now := time.Now()
	verdict := judge(fresh, job.queue, definition, failed, w.Generation.Now(), now)
	text, err := payload.Encode(verdict.job, "")
	if err != nil { // cannot happen: the text came out of a decoder
		text = job.text
	}
	w.logf("job failed: %q: %q", failed.class, message(failed.message))
	deadSetting, _ := verdict.job.Get("dead")
	switch {
	case verdict.fate == retried:
		w.persist("retry", func(again bool) error { return w.store.retry(job, verdict.due, text, again) })
		return
	case verdict.fate == exhausted:
		if definition != nil && definition.Exhausted != nil {
			w.guard("exhausted hook", func() error { return definition.Exhausted(verdict.job, failed.err) })
		}
		if deadSetting != false {
			w.persist("kill", func(again bool) error {
				return w.store.kill(job, "dead", text, payload.Seconds(now), true, again)
			})
			break
		}
		fallthrough
	default:
		w.persist("drop", func(again bool) error { return w.store.done(job, true, again) })
	}
	for _, handler := range w.Deaths {
		w.guard("death handler", func() error { return handler(verdict.job, failed.err) })
	}
}

// guard calls code of the application, whose errors change nothing. [RETRY-27]
func (w *Worker) guard(what string, call func() error) {
	defer func() {
		if problem := recover(); problem != nil {
			w.logf("%s: panic: %q", what, fmt.Sprint(problem))
		}
	}()
	if err := call(); err != nil {
		w.logf("%s: %q", what, err.Error())
	}
}
