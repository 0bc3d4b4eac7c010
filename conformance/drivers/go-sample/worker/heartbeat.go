package worker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gosample/mistake"
	"gosample/payload"
	"gosample/redis"
)

// Times to live, in seconds: of what shows a process, and of the counters of a day.
const (
	presenceLife = "60"
	dayLife      = "157680000"
)

// newIdentity names one life of a process. [BEAT-6] [BEAT-18]
func newIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	var nonce [6]byte
	rand.Read(nonce[:])
	switch {
	case mistake.Made("nonce-from-the-process-id"):
		return fmt.Sprintf("%s:%d:%012x", host, os.Getpid(), os.Getpid())
	case mistake.Made("nonce-in-upper-case"):
		return fmt.Sprintf("%s:%d:%X", host, os.Getpid(), nonce)
	}
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), hex.EncodeToString(nonce[:]))
}

// beat shows that the process is alive and what it does, and obeys one signal from Redis. [BEAT-15]
func (w *Worker) beat() error {
	before := time.Now()
	if _, err := w.Pool.Do("PING"); err != nil {
		return err
	}
	roundTrip := time.Since(before)
	if err := w.flushCounters(); err != nil {
		return err
	}
	records := w.workRecords()
	if err := w.writeRecords(records); err != nil {
		return err
	}
	busy := len(records)
	if mistake.Made("busy-of-the-last-beat") {
		busy, w.lastBusy = w.lastBusy, busy
	}
	rtt, rss, quiet := roundTrip.Microseconds(), residentKiB(), strconv.FormatBool(w.isQuiet())
	switch {
	case mistake.Made("rss-in-bytes"):
		rss *= 1024
	case mistake.Made("never-shows-quiet"):
		quiet = "false"
	}
	life := presenceLife
	if mistake.Made("lives-an-hour") {
		life = "3600"
	}
	presence := redis.Command{"HSET", w.identity,
		"info", w.info(),
		"concurrency", strconv.Itoa(w.Concurrency),
		"busy", strconv.Itoa(busy),
		"beat", payload.Score(payload.Seconds(time.Now())),
		"rtt_us", strconv.FormatInt(rtt, 10),
		"quiet", quiet,
		"rss", strconv.Itoa(rss),
	}
	if mistake.Made("no-concurrency-in-hash") {
		presence = slices.Delete(presence, 4, 6)
	}
	if life == "" {
		_, err := w.Pool.Transaction(redis.Command{"SADD", "processes", w.identity}, presence)
		return err
	}
	pop := redis.Command{"RPOP", w.identity + "-signals"}
	if mistake.Made("takes-ten-signals") {
		pop = append(pop, "10")
	}
	replies, err := w.Pool.Transaction(append([]redis.Command{
		{"SADD", "processes", w.identity},
		presence,
		{"EXPIRE", w.identity, life},
		pop,
	}, w.alsoBeat...)...)
	if err != nil {
		return err
	}
	if signal, ok := replies[3].(string); ok {
		w.obey(signal)
	}
	if signals, ok := replies[3].([]any); ok {
		for _, signal := range signals {
			w.obey(signal.(string))
		}
	}
	return nil
}

// workRecords returns executor → record of the jobs that run. [BEAT-17]
func (w *Worker) workRecords() map[string]string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	records := map[string]string{}
	for _, job := range w.running {
		var shown, began any = job.text, job.began.Unix()
		queue, key := job.queue, job.executor
		decoded, _ := payload.Decode(job.text)
		switch {
		case mistake.Made("run-at-with-fraction"):
			began = payload.Seconds(job.began)
		case mistake.Made("records-by-jid"):
			jid, _ := decoded.Get("jid")
			key = fmt.Sprint(jid)
		}
		record, err := payload.Encode(payload.Object{
			{Name: "queue", Value: queue},
			{Name: "payload", Value: shown},
			{Name: "run_at", Value: began},
		}, "")
		if err == nil {
			records[key] = record
		}
	}
	return records
}

// writeRecords rewrites the work records under the names of all generations. [BEAT-5] [BEAT-14]
func (w *Worker) writeRecords(records map[string]string) error {
	keys := w.recordKeys()
	commands := []redis.Command{append(redis.Command{"UNLINK"}, keys...)}
	for _, key := range keys {
		if len(records) > 0 {
			command := redis.Command{"HSET", key}
			for executor, record := range records {
				command = append(command, executor, record)
			}
			commands = append(commands, command, redis.Command{"EXPIRE", key, presenceLife})
			if mistake.Made("records-without-end") {
				commands = commands[:len(commands)-1]
			}
		}
	}
	if len(commands) == 0 {
		return nil
	}
	_, err := w.Pool.Transaction(commands...)
	return err
}

func (w *Worker) recordKeys() []string {
	keys := []string{w.identity + ":work", w.identity + ":workers"}
	if mistake.Made("records-of-generation-8") {
		return keys[:1]
	}
	return keys
}

// info describes the process in the form of every generation. [BEAT-13]
func (w *Worker) info() string {
	names, weights := []any{}, payload.Object{}
	for _, queue := range w.Queues {
		if _, repeated := weights.Get(queue.Name); !repeated {
			names = append(names, queue.Name)
		}
		weights.Set(queue.Name, queue.Weight)
	}
	host, pid, _ := strings.Cut(w.identity, ":")
	pid, _, _ = strings.Cut(pid, ":")
	info := payload.Object{
		{Name: "hostname", Value: host},
		{Name: "started_at", Value: payload.Seconds(w.started)},
		{Name: "pid", Value: payload.Number(pid)},
		{Name: "tag", Value: ""},
		{Name: "concurrency", Value: w.Concurrency},
		{Name: "queues", Value: names},
		{Name: "weights", Value: []any{weights}},
		{Name: "labels", Value: []any{}},
		{Name: "identity", Value: w.identity},
		{Name: "version", Value: "go-sample 1.0.0"}, // no digit first: it is not Sidekiq
		{Name: "embedded", Value: false},
		{Name: "capsules", Value: payload.Object{{Name: "default", Value: payload.Object{
			{Name: "concurrency", Value: w.Concurrency},
			{Name: "mode", Value: mode(w.Queues)},
			{Name: "weights", Value: weights},
		}}}},
	}
	switch {
	case mistake.Made("no-capsules-in-info"):
		info.Set("capsules", payload.Object{})
	case mistake.Made("started-at-in-milliseconds"):
		info.Set("started_at", w.started.UnixMilli())
	case mistake.Made("one-executor-in-info"):
		info.Set("concurrency", 1)
	case mistake.Made("embedded-as-text"):
		info.Set("embedded", "false")
	}
	text, _ := payload.Encode(info, "")
	return text
}

// count notes an execution, for the next beat. [STAT-1]
func (w *Worker) count(failed bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.processed++
	if failed {
		w.failed++
	}
}

// flushCounters adds the counted executions to the counters. [STAT-1] [STAT-2] [STAT-4]
func (w *Worker) flushCounters() error {
	w.mutex.Lock()
	processed, failed := w.processed, w.failed
	w.processed, w.failed = 0, 0
	w.mutex.Unlock()
	day := today()
	var commands []redis.Command
	for name, number := range map[string]int64{"stat:processed": processed, "stat:failed": failed} {
		if number > 0 {
			dayLife := dayLife
			if mistake.Made("counters-of-a-year") {
				dayLife = "31536000"
			}
			text := strconv.FormatInt(number, 10)
			commands = append(commands, redis.Command{"INCRBY", name, text},
				redis.Command{"INCRBY", name + ":" + day, text}, redis.Command{"EXPIRE", name + ":" + day, dayLife})
		}
	}
	if len(commands) == 0 {
		return nil
	}
	_, err := w.Pool.Transaction(commands...)
	if err != nil && !redis.Uncertain(err) && !redis.HasCode(err, "WRONGTYPE", "ERR") { // nothing was counted
		w.mutex.Lock()
		w.processed, w.failed = w.processed+processed, w.failed+failed
		w.mutex.Unlock()
	}
	return err
}

// today returns the date of UTC. [STAT-2]
func today() string {
	if mistake.Made("local-date") {
		return time.Now().Format(time.DateOnly)
	}
	return time.Now().UTC().Format(time.DateOnly)
}

// residentKiB returns the resident memory of the process, 0 if it is unknown.
func residentKiB() int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return pages * os.Getpagesize() / 1024
}
