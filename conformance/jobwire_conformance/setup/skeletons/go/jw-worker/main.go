// Worker of `jobwire conform`: our worker with the five standard jobs. Fill in start.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// setting returns a setting of the suite.
func setting(name, fallback string) string {
	if value := os.Getenv("JOBWIRE_" + name); value != "" {
		return value
	}
	return fallback
}

var (
	redisURL    = setting("REDIS_URL", "redis://127.0.0.1:6379/0")
	queues      = strings.Split(setting("QUEUES", "default"), ",") // `a:5` has weight 5; without weights: strict
	concurrency = setting("CONCURRENCY", "1")
	poll        = setting("POLL", "5")       // seconds between looks for due jobs
	beat        = setting("BEAT", "10")      // seconds between heartbeats
	grace       = setting("GRACE", "25")     // seconds for running jobs after SIGTERM
	generation  = setting("GENERATION", "8") // 7: times in seconds, 8: milliseconds
	run         = setting("RUN", "run")
)

// A jobwireError is the error of failing jobs. Its name in error_class must be JobwireError.
type jobwireError struct{ message string }

func (e jobwireError) Error() string { return e.message }

var errNotYet = errors.New("fill in start")

// A perform runs a job, with its jid and its arguments as raw JSON.
type perform func(jid string, args []json.RawMessage) error

// start registers these functions under their names with your worker, and runs it until SIGTERM.
func start(jobs map[string]perform) error {
	return errNotYet
}

// push pushes job with your client. It has class and args, and perhaps queue.
func push(job json.RawMessage) error {
	return errNotYet
}

var jobs = map[string]perform{
	"JobwireEcho": func(jid string, args []json.RawMessage) error {
		begin(jid, args)
		return end(jid, nil)
	},
	"JobwireFail": func(jid string, args []json.RawMessage) error {
		begin(jid, args)
		var message string
		json.Unmarshal(args[0], &message)
		return end(jid, jobwireError{message})
	},
	"JobwireFlaky": func(jid string, args []json.RawMessage) error {
		begin(jid, args)
		var times int
		json.Unmarshal(args[0], &times)
		count, _ := strconv.Atoi(control("INCR", "jw:"+run+":n:"+jid))
		if count <= times {
			return end(jid, jobwireError{fmt.Sprintf("time %d of %d", count, times)})
		}
		return end(jid, nil)
	},
	"JobwireGate": func(jid string, args []json.RawMessage) error {
		begin(jid, args)
		var name string
		json.Unmarshal(args[0], &name)
		control("BLPOP", "jw:"+run+":gate:"+name, "0")
		return end(jid, nil)
	},
	"JobwireSpawn": func(jid string, args []json.RawMessage) error {
		begin(jid, args)
		return end(jid, push(args[0]))
	},
}

func begin(jid string, args []json.RawMessage) {
	if args == nil {
		args = []json.RawMessage{}
	}
	report(map[string]any{"ev": "begin", "jid": jid, "args": args})
}

func end(jid string, err error) error {
	report(map[string]any{"ev": "end", "jid": jid, "ok": err == nil})
	return err
}

// report reports an event of a job to the suite.
func report(event map[string]any) {
	text, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	control("RPUSH", "jw:"+run+":ev", string(text))
}

// control sends one command to the control Redis and returns the reply, or the last part of it.
// You can use your own client.
func control(words ...string) string {
	address, err := url.Parse(setting("CONTROL_URL", redisURL))
	if err != nil {
		panic(err)
	}
	connection, err := net.Dial("tcp", address.Host)
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	database := strings.Trim(address.Path, "/")
	if database == "" {
		database = "0"
	}
	fmt.Fprintf(connection, "SELECT %s\r\n*%d\r\n", database, len(words))
	for _, word := range words {
		fmt.Fprintf(connection, "$%d\r\n%s\r\n", len(word), word)
	}
	replies := bufio.NewReader(connection)
	reply(replies)
	return reply(replies)
}

// reply reads one reply.
func reply(replies *bufio.Reader) string {
	line, err := replies.ReadString('\n')
	if err != nil || line[0] == '-' {
		panic(fmt.Sprint("the control Redis replied ", line, err))
	}
	text := strings.TrimSpace(line[1:])
	size, _ := strconv.Atoi(text)
	switch line[0] {
	case '$':
		data := make([]byte, size+2)
		if _, err := io.ReadFull(replies, data); err != nil {
			panic(err)
		}
		return string(data[:size])
	case '*':
		for ; size > 0; size-- {
			text = reply(replies)
		}
	}
	return text
}

func main() {
	if err := start(jobs); err != nil {
		fmt.Fprintln(os.Stderr, "jw-worker:", err)
		os.Exit(1)
	}
}
