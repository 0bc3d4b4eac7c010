// Driver of `jobwire conform`: pushes jobs with our client. Fill in push; the rest is done.
// Standard output is for answers only; logs go to standard error.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
)

const version = "0" // of the implementation

var (
	operations = []string{"push"}
	redisURL   = os.Getenv("JOBWIRE_REDIS_URL")
	generation = os.Getenv("JOBWIRE_GENERATION") // 7: times in seconds, 8: milliseconds
)

var (
	// errRejected: the client refused the job, and nothing was written.
	errRejected = errors.New("rejected")
	errNotYet   = errors.New("fill in push")

	start = regexp.MustCompile(`^\{"id":(\d+),"op":"(\w+)"`)
)

type request struct {
	Job job `json:"job"`
	// Time to run the job: At in epoch seconds, In in seconds from now, nil for at once.
	At json.RawMessage `json:"at"`
	In json.RawMessage `json:"in"`
}

// A job: class, args, and options under their names in the payload, as raw JSON.
type job map[string]json.RawMessage

// push pushes one job with your client, to redisURL, and returns its jid.
//
// Some requests hold invalid values, on purpose. Return an error that wraps errRejected if your
// client refuses the job. Any other error, and a panic, means that the client cannot know whether
// it was written.
func push(r request) (string, error) {
	return "", errNotYet
}

// safely pushes, and turns a panic into an error: no error may end the driver.
func safely(r request) (jid string, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			fmt.Fprintf(os.Stderr, "jw-driver: panic: %v\n%s", cause, debug.Stack())
			err = fmt.Errorf("panic: %v", cause)
		}
	}()
	return push(r)
}

// answer returns the answer to one request, without its id.
func answer(op string, line []byte) map[string]any {
	switch op {
	case "hello":
		return ok(map[string]any{"driver": 1, "version": version, "ops": operations})
	case "push":
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return failed("unknown", err)
		}
		jid, err := safely(r)
		switch {
		case err == nil:
			return ok(map[string]any{"jid": jid})
		case errors.Is(err, errNotYet):
			fmt.Fprintln(os.Stderr, "jw-driver: fill in push")
		case errors.Is(err, errRejected):
			return failed("rejected", err)
		default:
			return failed("unknown", err)
		}
	case "bye":
		return ok(map[string]any{})
	}
	return map[string]any{"unsupported": true}
}

func ok(result map[string]any) map[string]any { return map[string]any{"ok": result} }

func failed(kind string, err error) map[string]any {
	return map[string]any{"error": map[string]any{"kind": kind, "message": err.Error()}}
}

func main() {
	requests := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout) // one line each, not buffered
	for {
		line, err := requests.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		// Every request begins with id and op, without spaces: {"id":1,"op":"push",...
		begin := start.FindSubmatch(line)
		if err != nil || begin == nil {
			fmt.Fprintf(os.Stderr, "jw-driver: not a request: %s %v\n", line, err)
			os.Exit(1)
		}
		op := string(begin[2])
		result := answer(op, line)
		result["id"] = json.RawMessage(begin[1])
		if err := answers.Encode(result); err != nil {
			os.Exit(1)
		}
		if op == "bye" {
			return
		}
	}
}
