package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"gosample/payload"
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
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(wait * float64(time.Second))):
		}
		if first {
			if err := w.prune(); err != nil {
				w.logf("pruning of processes: %v", err)
			}
		}
		for _, set := range []string{"retry", "schedule"} { // in this order [SCHED-21]
			if err := w.promote(ctx, set); err != nil {
				w.logf("promotion from %s: %v", set, err)
			}
		}
		wait = w.average() * (0.5 + rand.Float64())
	}
}

// average returns the average wait, which grows with the fleet. [SCHED-8]
func (w *Worker) average() float64 {
	if w.Poll > 0 {
		return w.Poll
	}
	reply, _ := w.Pool.Do("SCARD", "processes")
	processes, _ := reply.(int64)
	return defaultPoll * float64(max(processes, 1))
}

// prune removes processes that have died. [BEAT-8] [BEAT-21] [BEAT-22]
func (w *Worker) prune() error {
	locked, err := w.Pool.Do("SET", "process_cleanup", "1", "NX", "EX", "60")
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
			if err := w.killDue(set, text, err, now); err != nil {
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
	return int(reply.([]any)[1].(int64)), nil
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
	if _, present := job.Get("retry"); !present {
		job.Prepend("retry", true)
	}
	if _, present := job.Get("created_at"); !present {
		job.Set("created_at", generation.Time(now))
	}
	job.Delete("at")
	job.Set("enqueued_at", generation.Time(now))
	name, _ := job.Get("queue")
	if !isName(name) {
		return "", "", errors.New("no usable queue name")
	}
	promoted, err = payload.Encode(job, "")
	return name.(string), promoted, err
}

// killDue moves a member that cannot be promoted out of the way. [SCHED-9]
func (w *Worker) killDue(set, text string, problem error, now time.Time) error {
	target := "dead"
	if errors.Is(problem, payload.ErrNotObject) {
		target = "jobwire:unreadable"
	}
	w.logf("a member of %s: %v; moved to %s", set, problem, target)
	seconds := payload.Seconds(now)
	_, err := w.Scripts.Call(w.Pool, "kill_due", []string{set, target},
		[]string{payload.Score(seconds), payload.Score(seconds - deadAge), strconv.Itoa(deadLimit), text})
	return err
}
