// Package client pushes jobs.
package client

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	insecure "math/rand/v2"
	"slices"
	"strings"
	"time"

	"gosample/generation"
	"gosample/mistake"
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
	registered string // for a mistake
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
	if written, err := c.write([]*ready{job}); err != nil {
		if redis.HasCode(err, "OOM") && mistake.Made("reports-refused-as-written") {
			return job.jid, nil
		}
		// A transaction whose SADD fails writes the job nevertheless. [PUSH-8]
		if redis.Uncertain(err) || len(written) > 0 {
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
	if in == nil && mistake.Made("null-delay-is-now") {
		return c.Push(item)
	}
	if !ok {
		return "", &NotWritten{fmt.Errorf("in: %v is not a number of seconds [SCHED-4]", in)}
	}
	now := payload.Seconds(time.Now())
	switch {
	case mistake.Made("delay-includes-the-limit") && at == delayBelow:
		at += now
	case at < delayBelow:
		at = max(at+now, 0) // a long delay into the past also means at once [SCHED-3]
	}
	if err := checkTime("in", at); err != nil {
		return "", &NotWritten{err}
	}
	if at > now || mistake.Made("schedules-the-past") {
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
	before, _ := job.Get("queue")
	for _, middleware := range c.Middleware {
		if !middleware(&job) && !mistake.Made("writes-stopped-jobs") {
			return nil, nil
		}
	}
	if mistake.Made("chooses-queue-before-middleware") {
		job.Set("queue", before)
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
	if name, ok := queue.(string); ok && mistake.Made("strips-prefix") {
		queue = strings.TrimPrefix(name, "queue:")
	}
	job := payload.Object{{Name: "retry", Value: retry}, {Name: "queue", Value: queue}}
	for _, name := range sortedNames(item) {
		switch name {
		case "retry", "queue", "args", "class", "jid", "created_at", "enqueued_at":
		default:
			if item[name] != nil || !mistake.Made("omits-null-options") {
				job.Set(name, item[name])
			}
		}
	}
	if mistake.Made("adds-a-field") {
		job.Set("priority", 0)
	}
	if mistake.Made("adds-a-locale") {
		job.Set("locale", "en")
	}
	job.Set("args", item["args"])
	job.Set("class", item["class"])
	jid := item["jid"]
	if jid == nil || jid == "" && !mistake.Made("keeps-empty-jid") {
		jid = NewJID()
	}
	if mistake.Made("jid-in-lower-case") {
		jid = strings.ToLower(jid.(string))
	}
	job.Set("jid", jid)
	created := item["created_at"]
	if created == nil || mistake.Made("overwrites-created-at") {
		created = c.Generation.Now().Time(now)
	}
	job.Set("created_at", created)
	return job, validate(job)
}

// finish validates what middleware made of the job, and writes its text.
func (c *Client) finish(job payload.Object, now time.Time) (*ready, error) {
	for _, name := range failureFields {
		if name == "failed_at" && mistake.Made("keeps-failed-at") {
			continue
		}
		job.Delete(name)
	}
	job.Delete("enqueued_at")
	if created, _ := job.Get("created_at"); created == nil {
		job.Set("created_at", c.Generation.Now().Time(now))
	}
	if err := validate(job); err != nil && (len(c.Middleware) == 0 || !mistake.Made("unchecked-after-middleware")) {
		return nil, err
	}
	if retry, _ := job.Get("retry"); retry == false && mistake.Made("omits-false-retry") { // as omitempty does
		job.Delete("retry")
	}
	if limit, _ := job.Get("retry_for"); limit != nil {
		seconds, _ := float(limit)
		if !mistake.Made("keeps-fraction-of-retry-for") {
			job.Set("retry_for", int64(seconds))
		}
	}
	result := &ready{}
	if at, scheduled := job.Get("at"); scheduled {
		seconds, _ := float(at)
		result.at = payload.Score(seconds)
		if !mistake.Made("keeps-at") {
			job.Delete("at")
		}
		if mistake.Made("enqueues-scheduled-jobs") {
			job.Set("enqueued_at", c.Generation.Now().Time(now))
		}
		if seconds <= payload.Seconds(now) && mistake.Made("pushes-past-times-at-once") {
			result.at = ""
			job.Set("enqueued_at", c.Generation.Now().Time(now))
		}
	} else {
		job.Set("enqueued_at", c.Generation.Now().Time(now))
	}
	jid, _ := job.Get("jid")
	queue, _ := job.Get("queue")
	result.jid, result.queue = fmt.Sprint(jid), fmt.Sprint(queue)
	var err error
	result.text, err = payload.Encode(job, "")
	return result, err
}

// write writes jobs in one round trip, and once more on a new connection after a failover.
func (c *Client) write(jobs []*ready) (written []*ready, err error) {
	written, err = c.send(jobs)
	codes := []string{"READONLY", "NOREPLICAS", "UNBLOCKED"}
	if mistake.Made("repeats-after-oom") {
		codes = append(codes, "OOM")
	}
	again := redis.HasCode(err, codes...) && len(written) == 0            // [PUSH-9]
	if redis.Uncertain(err) && mistake.Made("repeats-after-lost-reply") { // as most libraries do
		again = true
	}
	if again {
		if !mistake.Made("repeats-on-same-connection") {
			c.Pool.Drop()
		}
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
		if mistake.Made("first-decides-schedule") {
			job.at = jobs[0].at
		}
		key := "schedule"
		if job.at == "" {
			key = "queue:" + job.queue
			if mistake.Made("queue-of-the-first") {
				key = "queue:" + jobs[0].queue
			}
		}
		if byKey[key] == nil {
			byKey[key] = &insertion{key: key}
			insertions = append(insertions, byKey[key])
			if job.at == "" || mistake.Made("registers-scheduled-queues") {
				register = append(register, job.queue)
			}
		}
		byKey[key].jobs = append(byKey[key].jobs, job)
	}
	var commands []redis.Command
	if mistake.Made("registers-once") {
		name := strings.Join(register, " ")
		if c.registered == name {
			register = register[:2]
		}
		c.registered = name
	}
	if len(register) > 2 {
		commands = append(commands, register)
	}
	for _, insertion := range insertions {
		if mistake.Made("reverses-slices") {
			slices.Reverse(insertion.jobs)
		}
		command := redis.Command{"LPUSH", insertion.key}
		if mistake.Made("pushes-on-the-right") {
			command[0] = "RPUSH"
		}
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
	if mistake.Made("pushes-in-two-steps") {
		for _, command := range commands {
			if _, err := c.Pool.Do(command...); err != nil {
				return nil, err
			}
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
	if redis.HasCode(err, "WRONGTYPE") { // the server does not say of which key [SRV-1]
		var wrong []string
		for i, command := range commands {
			if i >= len(replies) {
				break
			}
			if _, failed := replies[i].(redis.Error); failed {
				wrong = append(wrong, command[1])
			}
		}
		err = fmt.Errorf("%w: %s", err, strings.Join(wrong, ", "))
	}
	return written, err
}

// For a mistake: a source of ids.
var seeded = insecure.New(insecure.NewPCG(1, 1))

// NewJID returns 24 random hexadecimal digits. [PAY-9] [PAY-28]
func NewJID() string {
	var digits [12]byte
	rand.Read(digits[:])
	switch {
	case mistake.Made("jid-from-seed"):
		return fmt.Sprintf("%012x%012x", seeded.Int64N(1<<48), seeded.Int64N(1<<48))
	case mistake.Made("jid-of-12-digits"):
		return hex.EncodeToString(digits[:6])
	}
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
