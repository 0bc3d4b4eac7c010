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

	"gosample/mistake"
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
	if mistake.Made("runs-what-a-pending-fetch-brings") {
		w.mutex.Lock()
		job.state, job.began, w.running[job] = running, time.Now(), job
		w.mutex.Unlock()
	} else if !w.begin(job) {
		if mistake.Made("puts-back-late") {
			time.Sleep(3 * time.Second)
		}
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
		w.fail(job, decoded, definition, *failed)
	}
	w.settled(job)
}

// unreadable moves a text that is not a payload out of the way. [EXEC-3] [EXEC-4]
func (w *Worker) unreadable(job *held, err error) {
	set := "dead"
	if errors.Is(err, payload.ErrNotObject) && !mistake.Made("kills-what-is-no-object") {
		set = "jobwire:unreadable"
	}
	executed := mistake.Made("counts-unreadable")
	if mistake.Made("kills-with-score-0") {
		w.persist("kill", func(again bool) error { return w.store.kill(job, set, job.text, 0, executed, again) })
		return
	}
	w.logf("a payload in %q: %v; moved to %s", job.queue, err, set)
	w.persist("kill", func(again bool) error {
		return w.store.kill(job, set, job.text, payload.Seconds(time.Now()), executed, again)
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
		if mistake.Made("skipped-is-failed") && len(code.Args) == 1 && code.Args[0] == "skip" {
			err = errors.New("middleware stopped the job")
		}
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
		if field == "compressed" && mistake.Made("knows-encrypt-only") {
			continue
		}
		if value, _ := decoded.Get(field); value != nil && value != false {
			return nil, &ClassError{Class: "EncodedArguments", Message: "the arguments are encoded: " + field}
		}
	}
	value, _ := decoded.Get("args")
	args, ok := value.([]any)
	if value == nil && mistake.Made("refuses-missing-arguments") {
		return nil, &ClassError{Class: "ArgumentError", Message: "args is missing"}
	}
	if value != nil && !ok && mistake.Made("runs-other-arguments") {
		args, ok = []any{value}, true
	}
	if len(args) == 1 && mistake.Made("spreads-a-single-array") {
		if inner, isArray := args[0].([]any); isArray {
			args = inner
		}
	}
	if value != nil && !ok {
		return nil, &ClassError{Class: "ArgumentError", Message: "args is not an array"}
	}
	jid, _ := decoded.Get("jid")
	return &Job{JID: jid, Args: args}, nil
}

// fail stores the outcome of a job that failed.
func (w *Worker) fail(job *held, decoded payload.Object, definition *Definition, failed failure) {
	fresh, _ := payload.Decode(job.text) // the job may have changed its arguments [EXEC-5]
	if mistake.Made("stores-changed-arguments") {
		fresh = decoded
	}
	if definition == nil && mistake.Made("kills-unknown-classes") {
		fresh.Set("retry", payload.Number("0"))
	}
	now := time.Now()
	verdict := judge(fresh, job.queue, definition, failed, w.Generation.Now(), now)
	text, err := payload.Encode(verdict.job, "")
	if err != nil { // cannot happen: the text came out of a decoder
		text = job.text
	}
	w.logf("job failed: %q: %q", failed.class, message(failed.message))
	deadSetting, given := verdict.job.Get("dead")
	if given && deadSetting != true && mistake.Made("dead-null-is-false") {
		deadSetting = false
	}
	deaths := func() {
		for _, handler := range w.Deaths {
			w.guard("death handler", func() error { return handler(verdict.job, failed.err) })
			if mistake.Made("stops-at-the-first-handler") {
				break
			}
		}
	}
	killedAt := payload.Seconds(now)
	if mistake.Made("dies-at-its-first-failure") {
		if stored, _ := verdict.job.Get("failed_at"); stored != nil {
			killedAt, _ = payload.ReadTime(stored)
		}
	}
	switch {
	case verdict.fate == retried:
		w.persist("retry", func(again bool) error { return w.store.retry(job, verdict.due, text, again) })
		return
	case verdict.fate == exhausted:
		if mistake.Made("death-handlers-first") {
			deaths()
		}
		if definition != nil && definition.Exhausted != nil && (deadSetting != false || !mistake.Made("dead-false-is-silent")) {
			w.guard("exhausted hook", func() error { return definition.Exhausted(verdict.job, failed.err) })
		}
		if deadSetting != false {
			counted := !mistake.Made("counts-no-killed-jobs")
			w.persist("kill", func(again bool) error {
				return w.store.kill(job, "dead", text, killedAt, counted, again)
			})
			break
		}
		fallthrough
	default:
		counted := !mistake.Made("counts-dropped-jobs-as-successes")
		w.persist("drop", func(again bool) error { return w.store.done(job, counted, again) })
	}
	if deadSetting == false && mistake.Made("dead-false-is-silent") || mistake.Made("death-handlers-first") ||
		verdict.wished && verdict.fate == dropped && mistake.Made("no-handlers-for-discarded-jobs") {
		return
	}
	deaths()
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
