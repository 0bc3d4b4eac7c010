// Package client pushes jobs.
package client

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"gosample/generation"
	"gosample/payload"
	"gosample/redis"
)

// Item is a job as a caller gives it: class, args and options under their names in the payload.
type Item map[string]any

// Middleware sees each payload before it is written. It may change the payload, or stop the job.
type Middleware func(job *payload.Object) (goOn bool)

// Client pushes to one server.
type Client struct {
	Pool       *redis.Pool
	Generation *generation.Choice
	Middleware []Middleware
}

// NotWritten is the error of a push that certainly left no job.
type NotWritten struct{ Err error }

func (e *NotWritten) Error() string { return "not written: " + e.Err.Error() }
func (e *NotWritten) Unwrap() error { return e.Err }

// MaybeWritten is the error of a push whose job may exist, with this jid.
type MaybeWritten struct {
	JID string
	Err error
}

func (e *MaybeWritten) Error() string {
	return fmt.Sprintf("may have been written, with jid %s: %v", e.JID, e.Err)
}
func (e *MaybeWritten) Unwrap() error { return e.Err }

// ErrStopped means that middleware stopped the job.
var ErrStopped = errors.New("middleware stopped the job")

// Push pushes one job, at once or for the time in its `at`, and returns its jid.
func (c *Client) Push(item Item) (string, error) {
	job, err := c.prepare(item, time.Now())
	if err != nil {
		return "", &NotWritten{err}
	}
	if job == nil {
		return "", &NotWritten{ErrStopped}
	}
	if _, err := c.write([]*ready{job}); err != nil {
		if redis.Uncertain(err) {
			return "", &MaybeWritten{job.jid, err}
		}
		return "", &NotWritten{err}
	}
	return job.jid, nil
}

// delayBelow is the number below which PushIn takes a number for a delay. [SCHED-2]
const delayBelow = 1e9

// PushIn pushes a job for a number of seconds from now, or for a time in seconds since 1970.
func (c *Client) PushIn(in any, item Item) (string, error) {
	at, ok := float(in)
	if !ok {
		return "", &NotWritten{fmt.Errorf("in: %v is not a number of seconds [SCHED-4]", in)}
	}
	now := payload.Seconds(time.Now())
	if at < delayBelow {
		at += now
	}
	if err := checkTime("in", at); err != nil {
		return "", &NotWritten{err}
	}
	if at > now {
		item["at"] = at
	}
	return c.Push(item)
}

// ready is a job that only has to be written.
type ready struct {
	jid, queue, text string
	at               string // score; "" for a push at once
}

// failureFields say that a job has failed, so that a new one has none of them. [PAY-14]
var failureFields = []string{
	"retry_count", "failed_at", "retried_at", "error_message", "error_class", "error_backtrace",
}

// prepare makes the payload of one job, nil if middleware stops it.
func (c *Client) prepare(item Item, now time.Time) (*ready, error) {
	job, err := c.build(item, now)
	if err != nil {
		return nil, err
	}
	for _, middleware := range c.Middleware {
		if !middleware(&job) {
			return nil, nil
		}
	}
	if len(c.Middleware) > 0 {
		if err := checkComplete(job); err != nil {
			return nil, err
		}
	}
	return c.finish(job, now)
}

// build fills in defaults and validates.
func (c *Client) build(item Item, now time.Time) (payload.Object, error) {
	retry, given := item["retry"]
	if !given {
		retry = true
	}
	queue, given := item["queue"]
	if !given {
		queue = "default"
	}
	job := payload.Object{{Name: "retry", Value: retry}, {Name: "queue", Value: queue}}
	for _, name := range sortedNames(item) {
		switch name {
		case "retry", "queue", "args", "class", "jid", "created_at", "enqueued_at":
		default:
			job.Set(name, item[name])
		}
	}
	job.Set("args", item["args"])
	job.Set("class", item["class"])
	jid := item["jid"]
	if jid == nil || jid == "" {
		jid = NewJID()
	}
	job.Set("jid", jid)
	created := item["created_at"]
	if created == nil {
		created = c.Generation.Now().Time(now)
	}
	job.Set("created_at", created)
	return job, validate(job)
}

// finish validates what middleware made of the job, and writes its text.
func (c *Client) finish(job payload.Object, now time.Time) (*ready, error) {
	for _, name := range failureFields {
		job.Delete(name)
	}
	job.Delete("enqueued_at")
	if created, _ := job.Get("created_at"); created == nil {
		job.Set("created_at", c.Generation.Now().Time(now))
	}
	if err := validate(job); err != nil {
		return nil, err
	}
	if limit, _ := job.Get("retry_for"); limit != nil {
		seconds, _ := float(limit)
		job.Set("retry_for", int64(seconds))
	}
	result := &ready{}
	if at, scheduled := job.Get("at"); scheduled {
		seconds, _ := float(at)
		result.at = payload.Score(seconds)
		job.Delete("at")
	} else {
		job.Set("enqueued_at", c.Generation.Now().Time(now))
	}
	jid, _ := job.Get("jid")
	queue, _ := job.Get("queue")
	result.jid, result.queue = jid.(string), queue.(string)
	var err error
	result.text, err = payload.Encode(job, "")
	return result, err
}

// write writes jobs in one round trip, and once more on a new connection after a failover.
func (c *Client) write(jobs []*ready) (written []*ready, err error) {
	written, err = c.send(jobs)
	if redis.HasCode(err, "READONLY", "NOREPLICAS", "UNBLOCKED") && len(written) == 0 { // [PUSH-9]
		c.Pool.Drop()
		written, err = c.send(jobs)
	}
	return written, err
}

// send writes jobs in one transaction. Of a transaction whose commands failed in part it returns the
// jobs that were written nevertheless.
func (c *Client) send(jobs []*ready) (written []*ready, err error) {
	type insertion struct {
		key  string
		jobs []*ready
	}
	var insertions []*insertion
	byKey := map[string]*insertion{}
	register := redis.Command{"SADD", "queues"}
	for _, job := range jobs {
		key := "schedule"
		if job.at == "" {
			key = "queue:" + job.queue
		}
		if byKey[key] == nil {
			byKey[key] = &insertion{key: key}
			insertions = append(insertions, byKey[key])
			if job.at == "" {
				register = append(register, job.queue)
			}
		}
		byKey[key].jobs = append(byKey[key].jobs, job)
	}
	var commands []redis.Command
	if len(register) > 2 {
		commands = append(commands, register)
	}
	for _, insertion := range insertions {
		command := redis.Command{"LPUSH", insertion.key}
		if insertion.key == "schedule" {
			command[0] = "ZADD"
		}
		for _, job := range insertion.jobs {
			if job.at != "" {
				command = append(command, job.at)
			}
			command = append(command, job.text)
		}
		commands = append(commands, command)
	}
	if len(commands) == 1 { // ZADD alone is one step
		_, err = c.Pool.Do(commands[0]...)
		if err != nil {
			return nil, err
		}
		return jobs, nil
	}
	replies, err := c.Pool.Transaction(commands...)
	first := len(commands) - len(insertions)
	for i, insertion := range insertions {
		if first+i < len(replies) {
			if _, failed := replies[first+i].(redis.Error); !failed {
				written = append(written, insertion.jobs...)
			}
		}
	}
	return written, err
}

// NewJID returns 24 random hexadecimal digits. [PAY-9] [PAY-28]
func NewJID() string {
	var digits [12]byte
	rand.Read(digits[:])
	return hex.EncodeToString(digits[:])
}

func checkTime(name string, at float64) error {
	if math.IsNaN(at) || at < 0 || at >= 1e11 {
		return fmt.Errorf("%s: %v is not a time in seconds since 1970 [SCHED-4]", name, at)
	}
	return nil
}

// float returns a number in one of the forms in which callers give it.
func float(value any) (float64, bool) {
	switch value := value.(type) {
	case float64:
		return value, true
	case payload.Number:
		return value.Float(), true
	case int:
		return float64(value), true
	case int64:
		return float64(value), true
	}
	return 0, false
}

// whole returns whether a value is an integer, and whether it is below 0.
func whole(value any) (isInteger, negative bool) {
	switch value := value.(type) {
	case payload.Number:
		return value.IsInteger(), strings.HasPrefix(string(value), "-")
	case int:
		return true, value < 0
	case int64:
		return true, value < 0
	}
	return false, false
}
