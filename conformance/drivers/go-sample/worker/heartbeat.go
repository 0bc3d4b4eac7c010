package worker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

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
	presence := redis.Command{"HSET", w.identity,
		"info", w.info(),
		"concurrency", strconv.Itoa(w.Concurrency),
		"busy", strconv.Itoa(len(records)),
		"beat", payload.Score(payload.Seconds(time.Now())),
		"rtt_us", strconv.FormatInt(roundTrip.Microseconds(), 10),
		"quiet", strconv.FormatBool(w.isQuiet()),
		"rss", strconv.Itoa(residentKiB()),
	}
	replies, err := w.Pool.Transaction(append([]redis.Command{
		{"SADD", "processes", w.identity},
		presence,
		{"EXPIRE", w.identity, presenceLife},
		{"RPOP", w.identity + "-signals"},
	}, w.alsoBeat...)...)
	if err != nil {
		return err
	}
	if signal, ok := replies[3].(string); ok {
		w.obey(signal)
	}
	return nil
}

// workRecords returns executor → record of the jobs that run. [BEAT-17]
func (w *Worker) workRecords() map[string]string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	records := map[string]string{}
	for _, job := range w.running {
		record, err := payload.Encode(payload.Object{
			{Name: "queue", Value: job.queue},
			{Name: "payload", Value: job.text},
			{Name: "run_at", Value: job.began.Unix()},
		}, "")
		if err == nil {
			records[job.executor] = record
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
		}
	}
	_, err := w.Pool.Transaction(commands...)
	return err
}

func (w *Worker) recordKeys() []string {
	return []string{w.identity + ":work", w.identity + ":workers"}
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
	text, _ := payload.Encode(payload.Object{
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
	}, "")
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
	day := time.Now().UTC().Format(time.DateOnly)
	var commands []redis.Command
	for name, number := range map[string]int64{"stat:processed": processed, "stat:failed": failed} {
		if number > 0 {
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
