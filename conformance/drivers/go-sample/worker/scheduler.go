package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"gosample/mistake"
	"gosample/payload"
	"gosample/redis"
)

// batch is how many due members one script promotes, at most.
const batch = 100

// defaultPoll is the average time between two looks, for each process. [SCHED-8]
const defaultPoll = 5.0

// schedule looks for due members until the worker is quiet.
func (w *Worker) schedule(ctx context.Context) {
	wait := rand.Float64() * defaultPoll
	if w.Poll == 0 {
		wait += 10 // processes that start together register first [SCHED-23]
	} else {
		wait = min(wait, w.Poll)
	}
	if mistake.Made("first-look-after-30-seconds") {
		wait = 30
	}
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(wait * float64(time.Second))):
		}
		if first && !mistake.Made("never-prunes") {
			if err := w.prune(); err != nil {
				w.logf("pruning of processes: %v", err)
			}
		}
		sets := []string{"retry", "schedule"} // in this order [SCHED-21]
		if mistake.Made("schedule-before-retry") {
			sets = []string{"schedule", "retry"}
		}
		for _, set := range sets {
			if err := w.promote(ctx, set); err != nil {
				w.logf("promotion from %s: %v", set, err)
			}
		}
		wait = w.average()
		switch {
		case mistake.Made("no-jitter-between-looks"):
		default:
			wait *= 0.5 + rand.Float64()
		}
	}
}

// average returns the average wait, which grows with the fleet. [SCHED-8]
func (w *Worker) average() float64 {
	if w.Poll > 0 {
		return w.Poll
	}
	reply, _ := w.Pool.Do("SCARD", "processes")
	processes, _ := reply.(int64)
	if mistake.Made("ignores-size-of-fleet") {
		processes = 1
	}
	return defaultPoll * float64(max(processes, 1))
}

// prune removes processes that have died. [BEAT-8] [BEAT-21] [BEAT-22]
func (w *Worker) prune() error {
	lock := redis.Command{"SET", "process_cleanup", "1", "NX", "EX", "60"}
	if mistake.Made("lock-without-nx") {
		lock = slices.Delete(lock, 3, 4)
	}
	locked, err := w.Pool.Do(lock...)
	if err != nil || locked == nil {
		return err
	}
	reply, err := w.Pool.Do("SMEMBERS", "processes")
	if err != nil {
		return err
	}
	for _, identity := range reply.([]any) {
		kind, err := w.Pool.Do("TYPE", identity.(string))
		if err != nil {
			return err
		}
		if kind != "none" && kind != "hash" && mistake.Made("keeps-processes-of-other-types") {
			continue
		}
		if kind != "hash" {
			if _, err := w.Pool.Do("SREM", "processes", identity.(string)); err != nil {
				return err
			}
		}
	}
	return nil
}

// promote moves the due members of a set to their queues, in batches, until the worker is quiet.
func (w *Worker) promote(ctx context.Context, set string) error {
	for stuck := 0; ctx.Err() == nil; { // [SCHED-10]
		now := time.Now()
		if mistake.Made("promotes-a-minute-early") {
			now = now.Add(time.Minute)
		}
		reply, err := w.Pool.Do("ZRANGE", set, "-inf", payload.Score(payload.Seconds(now)), "BYSCORE",
			"LIMIT", strconv.Itoa(stuck), strconv.Itoa(batch))
		if err != nil {
			return err
		}
		members := reply.([]any)
		more, err := w.promoteBatch(set, members, now)
		if err != nil || len(members) < batch {
			return err
		}
		stuck += more
	}
	return nil
}

// promoteBatch promotes members and returns how many stay, because their queue is not a list.
func (w *Worker) promoteBatch(set string, members []any, now time.Time) (stuck int, err error) {
	keys := []string{set, "queues"}
	var arguments []string
	numbers := map[string]string{} // queue → its number among the lists
	for _, member := range members {
		text := member.(string)
		queue, promoted, err := promotion(text, w.Generation.Now(), now)
		if err != nil {
			switch {
			case mistake.Made("stops-at-what-cannot-be-promoted"):
				return 0, err
			case mistake.Made("kills-due-in-two-steps"):
				w.Pool.Do("ZREM", set, text)
				w.Pool.Do("ZADD", "dead", payload.Score(payload.Seconds(now)), text)
				continue
			}
			if err := w.killDue(set, text, err, now); err != nil {
				return 0, err
			}
			continue
		}
		if done, err := w.promoteByHand(set, queue, text, promoted); done || err != nil {
			if err != nil {
				return 0, err
			}
			continue
		}
		if numbers[queue] == "" {
			keys = append(keys, queueKey(queue))
			numbers[queue] = strconv.Itoa(len(numbers) + 1)
		}
		arguments = append(arguments, text, numbers[queue], queue, promoted)
	}
	if len(arguments) == 0 {
		return 0, nil
	}
	reply, err := w.Scripts.Call(w.Pool, "promote", keys, arguments)
	if err != nil {
		return 0, err
	}
	stuck = int(reply.([]any)[1].(int64))
	if stuck > 0 && mistake.Made("kills-jobs-of-unusable-queues") {
		for _, member := range members {
			w.killDue(set, member.(string), errors.New("the queue is not a list"), now)
		}
	}
	return stuck, nil
}

// promoteByHand makes the mistakes of promotions without the script.
func (w *Worker) promoteByHand(set, queue, text, promoted string) (done bool, err error) {
	push := []redis.Command{{"SADD", "queues", queue}, {"LPUSH", queueKey(queue), promoted}}
	switch {
	case mistake.Made("removes-then-pushes"):
		if removed, err := w.Pool.Do("ZREM", set, text); err != nil || removed == int64(0) {
			return true, err
		}
	case mistake.Made("promotes-to-the-tail"):
		push[1][0] = "RPUSH"
		_, err := w.Pool.Transaction(append(push, redis.Command{"ZREM", set, text})...)
		return true, err
	case mistake.Made("promotes-unregistered"):
		_, err := w.Pool.Transaction(push[1], redis.Command{"ZREM", set, text})
		return true, err
	default:
		return false, nil
	}
	_, err = w.Pool.Transaction(push...)
	return true, err
}

// promotion returns the payload to push for a member, and its queue. [SCHED-6] [SCHED-17] [SCHED-18]
func promotion(text string, generation payload.Generation, now time.Time) (queue, promoted string, err error) {
	job, err := payload.Decode(text)
	if err != nil {
		return "", "", err
	}
	if _, present := job.Get("queue"); !present {
		job.Prepend("queue", "default")
	}
	if retry, present := job.Get("retry"); !present {
		job.Prepend("retry", true)
	} else if present && retry == nil && mistake.Made("promotes-null-retry-as-true") {
		job.Set("retry", true)
	}
	if _, present := job.Get("created_at"); !present {
		job.Set("created_at", generation.Time(now))
	}
	if !mistake.Made("promotes-with-at") {
		job.Delete("at")
	}
	if _, present := job.Get("enqueued_at"); !present || !mistake.Made("keeps-old-enqueued-at") {
		job.Set("enqueued_at", generation.Time(now))
	}
	if mistake.Made("promotion-knows-its-fields") { // as a struct does
		job = slices.DeleteFunc(job, func(member payload.Member) bool { return !slices.Contains(knownFields, member.Name) })
	}
	name, _ := job.Get("queue")
	if number, ok := name.(payload.Number); ok && mistake.Made("promotes-to-a-number") {
		promoted, err = payload.Encode(job, "")
		return string(number), promoted, err
	}
	if !isName(name) {
		return "", "", errors.New("no usable queue name")
	}
	promoted, err = payload.Encode(job, "")
	return name.(string), promoted, err
}

// For a mistake: the fields of a struct.
var knownFields = []string{"class", "args", "jid", "queue", "retry", "created_at", "enqueued_at", "retry_count",
	"failed_at", "retried_at", "error_message", "error_class", "error_backtrace", "backtrace", "retry_for", "retry_queue", "dead", "tags"}

// killDue moves a member that cannot be promoted out of the way. [SCHED-9]
func (w *Worker) killDue(set, text string, problem error, now time.Time) error {
	target := "dead"
	if errors.Is(problem, payload.ErrNotObject) {
		target = "jobwire:unreadable"
	}
	w.logf("a member of %s: %v; moved to %s", set, problem, target)
	seconds := payload.Seconds(now)
	age, limit := deadLimits()
	_, err := w.Scripts.Call(w.Pool, "kill_due", []string{set, target},
		[]string{payload.Score(seconds), payload.Score(seconds - age), strconv.Itoa(limit), text})
	return err
}
