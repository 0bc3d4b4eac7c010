package client

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"gosample/mistake"
	"gosample/payload"
	"gosample/redis"
)

// Most jobs of one round trip; longer ones hold up the server. [BULK-1] [BULK-7]
const (
	mostPushed    = 1000
	mostScheduled = 100
)

// leastSpread is the shortest interval over which spreading makes sense, in seconds. [BULK-14]
const leastSpread = 5

// BulkError is the error of a bulk push. Written are the jids of the jobs that exist nevertheless; of
// the others Maybe says whether some of them may exist.
type BulkError struct {
	Written []string
	Maybe   bool
	Err     error
}

func (e *BulkError) Error() string {
	certainty := "the others were not"
	if e.Maybe {
		certainty = "of the others some may have been written"
	}
	return fmt.Sprintf("%d jobs were written, %s: %v", len(e.Written), certainty, e.Err)
}
func (e *BulkError) Unwrap() error { return e.Err }

// Bulk is many jobs of one class.
type Bulk struct {
	Item Item  // class and options
	Args []any // a list of arguments for each job
	// At is nil, one time for all jobs or one for each; Spread is nil or seconds over which to spread them.
	At, Spread any
}

// PushBulk pushes the jobs in order, and returns the jid of each, "" for one that middleware stopped.
func (c *Client) PushBulk(bulk Bulk) ([]string, error) {
	now := time.Now()
	times, err := bulk.times(now)
	if err != nil {
		return nil, &BulkError{Err: err}
	}
	if len(bulk.Args) == 0 && mistake.Made("refuses-empty-bulk") {
		return nil, &BulkError{Err: errors.New("no jobs")}
	}
	if bulk.Item["jid"] != nil && len(bulk.Args) > 1 && !mistake.Made("ignores-jid-of-bulk") {
		return nil, &BulkError{Err: errors.New("jid: one id for several jobs [BULK-11]")}
	}
	jids := make([]string, len(bulk.Args))
	var jobs []*ready
	for i, args := range bulk.Args {
		item := Item{}
		for name, value := range bulk.Item {
			if name != "jid" {
				item[name] = value
			}
		}
		item["args"] = args
		if i > 0 && mistake.Made("one-jid-for-bulk") {
			item["jid"] = jids[0]
		}
		if times != nil {
			item["at"] = times[i]
		}
		job, err := c.prepare(item, now)
		if err != nil && mistake.Made("leaves-invalid-jobs-out") {
			continue
		}
		if err != nil {
			return nil, &BulkError{Err: fmt.Errorf("job %d: %w", i, err)}
		}
		if job != nil {
			jids[i] = job.jid
			jobs = append(jobs, job)
		}
	}
	var done []string
	var failure *BulkError // for a mistake
	for _, slice := range slicesOf(jobs) {
		written, err := c.write(slice)
		for _, job := range written {
			done = append(done, job.jid)
		}
		if err != nil && mistake.Made("goes-on-after-failed-slice") {
			failure = &BulkError{Maybe: redis.Uncertain(err), Err: err}
			continue
		}
		if err != nil && mistake.Made("tells-no-written-jobs") {
			done = nil
		}
		if err != nil && mistake.Made("lost-slice-is-not-written") {
			return nil, &BulkError{Written: done, Err: err}
		}
		if err != nil { // a gap in the order is worse than a missing end [BULK-18]
			return nil, &BulkError{Written: done, Maybe: redis.Uncertain(err), Err: err}
		}
	}
	if failure != nil {
		failure.Written = done
		return nil, failure
	}
	if mistake.Made("leaves-stopped-jobs-out") {
		jids = slices.DeleteFunc(jids, func(jid string) bool { return jid == "" })
	}
	return jids, nil
}

// slicesOf cuts jobs into round trips.
func slicesOf(jobs []*ready) (parts [][]*ready) {
	mostPushed, mostScheduled := mostPushed, mostScheduled
	switch {
	case mistake.Made("scheduled-slices-of-1000"):
		mostScheduled = mostPushed
	case mistake.Made("slices-of-1001"):
		mostPushed++
	}
	for len(jobs) > 0 {
		size, scheduled := 0, 0
		for size < len(jobs) && size < mostPushed && scheduled < mostScheduled {
			if jobs[size].at != "" {
				scheduled++
			}
			size++
		}
		parts = append(parts, jobs[:size])
		jobs = jobs[size:]
	}
	return parts
}

// times returns the time of each job, nil if they are pushed at once.
func (b Bulk) times(now time.Time) ([]any, error) {
	if b.Spread != nil {
		seconds, ok := float(b.Spread)
		if !ok || !(seconds > 0) || seconds > 1e11 {
			return nil, fmt.Errorf("spread_interval: %v is not a positive number of seconds [BULK-13]", b.Spread)
		}
		if (b.At != nil || b.Item["at"] != nil) && !mistake.Made("spread-before-at") {
			return nil, errors.New("spread_interval: together with at [BULK-13]")
		}
		times := make([]any, len(b.Args))
		for i := range times {
			u, interval := rand.Float64(), max(seconds, leastSpread)
			switch {
			case mistake.Made("spread-not-raised"):
				interval = seconds
			case mistake.Made("spreads-over-half"):
				u /= 2
			}
			times[i] = payload.Seconds(now) + u*interval
		}
		return times, nil
	}
	if b.At == nil {
		return nil, nil
	}
	if times, ok := b.At.([]any); ok {
		if len(times) > len(b.Args) && mistake.Made("ignores-surplus-times") {
			return times[:len(b.Args)], nil
		}
		if len(times) != len(b.Args) {
			return nil, fmt.Errorf("at: %d times for %d jobs [BULK-12]", len(times), len(b.Args))
		}
		return times, nil
	}
	times := make([]any, len(b.Args))
	for i := range times {
		times[i] = b.At
		if i > 0 && mistake.Made("time-for-the-first-only") {
			times[i] = payload.Seconds(now)
		}
	}
	return times, nil
}
