// Command driver answers the requests of `jobwire conform`, one JSON text a line.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"gosample/client"
	"gosample/generation"
	"gosample/payload"
	"gosample/redis"
)

// requestDepth is more than payloads may nest, because a request holds one.
const requestDepth = 1000

func main() {
	c, err := newClient()
	if err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
	requests := bufio.NewReader(os.Stdin)
	for {
		line, err := requests.ReadString('\n')
		if err != nil {
			return
		}
		result, last := answer(c, line)
		text, err := payload.Encode(append(payload.Object{{Name: "id", Value: id(line)}}, result...), "")
		if err != nil {
			fmt.Fprintln(os.Stderr, "driver:", err)
			os.Exit(1)
		}
		fmt.Println(text)
		if last {
			return
		}
	}
}

func newClient() (*client.Client, error) {
	timeout := 5 * time.Second
	if text := os.Getenv("JOBWIRE_TIMEOUT"); text != "" {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("JOBWIRE_TIMEOUT: %q is not a number of seconds", text)
		}
		timeout = time.Duration(seconds * float64(time.Second))
	}
	server, err := redis.Parse(os.Getenv("JOBWIRE_REDIS_URL"), timeout)
	if err != nil {
		return nil, err
	}
	pool := &redis.Pool{Server: server}
	return &client.Client{Pool: pool, Generation: generation.Parse(os.Getenv("JOBWIRE_GENERATION"), pool),
		Middleware: []client.Middleware{route}}, nil
}

// id takes the number from the text, because a request may be one that cannot be parsed.
func id(line string) payload.Number {
	digits := strings.TrimPrefix(line, `{"id":`)
	end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	return payload.Number(digits[:max(end, 0)])
}

func answer(c *client.Client, line string) (result payload.Object, last bool) {
	parsed, err := payload.Parse(line, requestDepth)
	if err != nil {
		return failed("rejected", err, nil), false
	}
	request := native(parsed).(map[string]any)
	switch request["op"] {
	case "hello":
		return ok(payload.Object{
			{Name: "driver", Value: 1}, {Name: "version", Value: "1.0.0"},
			{Name: "ops", Value: []any{"push", "push_bulk"}},
		}), false
	case "push":
		return push(c, request), false
	case "push_bulk":
		return pushBulk(c, request), false
	case "bye":
		return ok(payload.Object{}), true
	}
	return payload.Object{{Name: "unsupported", Value: true}}, false
}

func push(c *client.Client, request map[string]any) payload.Object {
	item := client.Item(request["job"].(map[string]any))
	unwritable(item)
	if at, given := request["at"]; given {
		item["at"] = at
	}
	var jid string
	var err error
	if in, given := request["in"]; given {
		jid, err = c.PushIn(in, item)
	} else {
		jid, err = c.Push(item)
	}
	var uncertain *client.MaybeWritten
	switch {
	case err == nil:
		return ok(payload.Object{{Name: "jid", Value: jid}})
	case errors.As(err, &uncertain):
		return failed("unknown", err, nil)
	}
	return failed("rejected", err, nil)
}

func pushBulk(c *client.Client, request map[string]any) payload.Object {
	item := client.Item(request["job"].(map[string]any))
	item["args"] = request["args"]
	unwritable(item)
	args := item["args"].([]any)
	delete(item, "args")
	jids, err := c.PushBulk(client.Bulk{
		Item: item, Args: args,
		At: request["at"], Spread: request["spread_interval"],
	})
	var bulk *client.BulkError
	if errors.As(err, &bulk) {
		kind := "rejected"
		if bulk.Maybe {
			kind = "unknown"
		}
		return failed(kind, err, bulk.Written)
	}
	answers := make([]any, len(jids))
	for i, jid := range jids {
		if jid != "" {
			answers[i] = jid
		}
	}
	return ok(payload.Object{{Name: "jids", Value: answers}})
}

func ok(result payload.Object) payload.Object { return payload.Object{{Name: "ok", Value: result}} }

func failed(kind string, err error, written []string) payload.Object {
	message := strings.ToValidUTF8(err.Error(), "\uFFFD")
	problem := payload.Object{{Name: "kind", Value: kind}, {Name: "message", Value: message}}
	if written != nil {
		problem.Set("written", written)
	}
	return payload.Object{{Name: "error", Value: problem}}
}

// native returns a parsed value in the types of Go's programmers: maps, and doubles for floats.
func native(value any) any {
	switch value := value.(type) {
	case payload.Number:
		if !value.IsInteger() {
			return value.Float()
		}
	case payload.Object:
		members := map[string]any{}
		for _, member := range value {
			members[member.Name] = native(member.Value)
		}
		return members
	case []any:
		for i := range value {
			value[i] = native(value[i])
		}
	}
	return value
}
