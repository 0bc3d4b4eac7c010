package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"gosample/mistake"
	"gosample/payload"
	"gosample/redis"
)

// Times that a fetch waits in the server for a job. The short one is for servers that refuse CLIENT,
// where nothing else ends the wait of a worker that stops.
const (
	longBlock  = 2 * time.Second
	shortBlock = 500 * time.Millisecond
)

// unusableFor is how long a queue is left out whose key is not a list.
const unusableFor = 2 * time.Second

// basic is the store without the reliable profile: BRPOP takes a job out of Redis.
type basic struct {
	*Worker
	mutex    sync.Mutex
	waiting  map[string]bool // CLIENT IDs of the connections that fetch
	unusable map[string]time.Time
}

func (b *basic) fetcher() func() (*held, error) {
	var conn *redis.Conn
	var id string
	return func() (*held, error) {
		if conn == nil {
			var err error
			if conn, err = b.Pool.Server.Dial(); err != nil {
				return nil, err
			}
			if reply, err := conn.Do("CLIENT", "ID"); err == nil {
				id = strconv.FormatInt(reply.(int64), 10)
			} else if _, refused := err.(redis.Error); !refused || mistake.Made("needs-client-id") {
				conn = nil
				return nil, err
			}
		}
		job, err := b.fetch(conn, id)
		var lost *redis.Lost
		if errors.As(err, &lost) || redis.HasCode(err, "READONLY", "UNBLOCKED") {
			conn.Close()
			conn, id = nil, ""
		}
		return job, err
	}
}

func (b *basic) fetch(conn *redis.Conn, id string) (*held, error) {
	names := b.usable()
	if len(names) == 0 {
		time.Sleep(shortBlock)
		return nil, nil
	}
	block := longBlock
	if mistake.Made("waits-for-a-long-fetch") {
		block = 30 * time.Second
	}
	if id == "" {
		block = shortBlock
	}
	command := redis.Command{"BRPOP"}
	if mistake.Made("takes-from-the-left") {
		command[0] = "BLPOP"
	}
	for _, name := range names {
		command = append(command, queueKey(name))
	}
	command = append(command, strconv.FormatFloat(block.Seconds(), 'f', -1, 64))
	b.expect(id, true)
	patience := block + 10*time.Second // longer than the server's [ENV-3]
	if mistake.Made("reads-for-a-second") {
		patience = time.Second
	}
	reply, err := conn.DoWithin(patience, command...)
	b.expect(id, false)
	if redis.HasCode(err, "WRONGTYPE") && !mistake.Made("stops-at-a-wrong-key") {
		return nil, b.leaveOut(names)
	}
	pair, ok := reply.([]any)
	if err != nil || !ok {
		return nil, err
	}
	queue := pair[0].(string)[len("queue:"):]
	if mistake.Made("strips-name-to-the-last-colon") {
		queue = queue[strings.LastIndexByte(queue, ':')+1:]
	}
	return &held{queue: queue, text: pair[1].(string)}, nil
}

// expect notes that a connection waits in the server.
func (b *basic) expect(id string, waits bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if waits && id != "" {
		b.waiting[id] = true
	} else {
		delete(b.waiting, id)
	}
}

// usable returns the queues of the next fetch.
func (b *basic) usable() (names []string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, name := range order(b.Queues) {
		if time.Now().After(b.unusable[name]) {
			names = append(names, name)
		}
	}
	return names
}

// leaveOut finds the queues whose keys are not lists, so that they do not stop the others. [FETCH-7]
func (b *basic) leaveOut(names []string) error {
	for _, name := range names {
		kind, err := b.Pool.Do("TYPE", queueKey(name))
		if err != nil {
			return err
		}
		if kind != "list" && kind != "none" {
			b.logf("the key %q is a %s and not a list; its jobs wait [FETCH-7]", queueKey(name), kind)
			b.mutex.Lock()
			b.unusable[name] = time.Now().Add(unusableFor)
			if mistake.Made("leaves-out-for-ever") {
				b.unusable[name] = time.Now().Add(24 * time.Hour)
			}
			b.mutex.Unlock()
		}
	}
	return nil
}

// comeHome unblocks the connections that wait, again and again, because a fetch may just begin.
func (b *basic) comeHome(home <-chan struct{}) {
	for {
		b.mutex.Lock()
		var ids []string
		for id := range b.waiting {
			ids = append(ids, id)
		}
		b.mutex.Unlock()
		if mistake.Made("waits-for-a-long-fetch") || mistake.Made("runs-what-a-pending-fetch-brings") {
			return
		}
		for _, id := range ids {
			b.Pool.Do("CLIENT", "UNBLOCK", id)
		}
		select {
		case <-home:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *basic) done(_ *held, failed, _ bool) error {
	b.count(failed)
	return nil
}

func (b *basic) retry(_ *held, due float64, text string, _ bool) error {
	if mistake.Made("counts-before-it-stores") {
		b.count(true)
		_, err := b.Pool.Do("ZADD", "retry", payload.Score(due), text)
		return err
	}
	_, err := b.Pool.Do("ZADD", "retry", payload.Score(due), text)
	if err == nil {
		b.count(true)
	}
	return err
}

func (b *basic) kill(_ *held, set, text string, now float64, executed, _ bool) error {
	age, limit := deadLimits()
	commands := []redis.Command{
		{"ZADD", set, payload.Score(now), text},
		{"ZREMRANGEBYSCORE", set, "-inf", payload.Score(now - age)},
		{"ZREMRANGEBYRANK", set, "0", fmt.Sprint(-limit)},
	}
	switch {
	case mistake.Made("never-trims-unreadable") && set != "dead":
		commands = commands[:1]
	case mistake.Made("trims-the-youngest"):
		commands[2] = redis.Command{"ZREMRANGEBYRANK", set, fmt.Sprint(limit), "-1"}
	}
	if mistake.Made("trims-in-a-second-step") {
		if _, err := b.Pool.Do(commands[0]...); err != nil {
			return err
		}
		commands = commands[1:]
	}
	_, err := b.Pool.Transaction(commands...)
	if err == nil && executed {
		b.count(true)
	}
	return err
}

func (b *basic) putBack(jobs []*held, _, _ bool) error {
	var commands []redis.Command
	for _, job := range jobs {
		command := redis.Command{"RPUSH", queueKey(job.queue), job.text}
		decoded, _ := payload.Decode(job.text)
		if mistake.Made("puts-back-to-the-queue-of-the-payload") {
			if name, _ := decoded.Get("queue"); isName(name) {
				command[1] = queueKey(name.(string))
			}
		}
		commands = append(commands, command)
	}
	_, err := b.Pool.Transaction(commands...)
	return err
}

// A job that its process took along is gone, so there is nothing to look after.
func (b *basic) poisoned(*held, payload.Object) bool { return false }
func (b *basic) watch(context.Context)               {}
func (b *basic) end() error                          { return nil }

func queueKey(name string) string { return "queue:" + name }
