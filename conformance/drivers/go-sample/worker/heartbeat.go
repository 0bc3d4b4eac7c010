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
	case mistake.Made("constant-nonce"):
		return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), "000000000000")
	case mistake.Made("nonce-from-the-process-id"):
		return fmt.Sprintf("%s:%d:%012x", host, os.Getpid(), os.Getpid())
	case mistake.Made("nonce-in-upper-case"):
		return fmt.Sprintf("%s:%d:%X", host, os.Getpid(), nonce)
	case mistake.Made("identity-without-nonce"):
		return fmt.Sprintf("%s:%d", host, os.Getpid())
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
	if w.isQuiet() && mistake.Made("no-beat-when-quiet") {
		return nil
	}
	records := w.workRecords()
	if mistake.Made("presence-before-the-records") {
		defer w.writeRecords(records)
	} else if err := w.writeRecords(records); err != nil {
		return err
	}
	busy := len(records)
	switch {
	case mistake.Made("busy-of-the-last-beat"):
		busy, w.lastBusy = w.lastBusy, busy
	case mistake.Made("busy-is-concurrency"):
		busy = w.Concurrency
	}
	rtt, rss, quiet := roundTrip.Microseconds(), residentKiB(), strconv.FormatBool(w.isQuiet())
	switch {
	case mistake.Made("rtt-in-milliseconds"):
		rtt = roundTrip.Milliseconds()
	case mistake.Made("rtt-in-nanoseconds"):
		rtt = roundTrip.Nanoseconds()
	case mistake.Made("rss-in-bytes"):
		rss *= 1024
	case mistake.Made("rss-in-pages"):
		rss /= 4
	case mistake.Made("quiet-as-number"):
		quiet = map[string]string{"true": "1", "false": "0"}[quiet]
	case mistake.Made("never-shows-quiet"):
		quiet = "false"
	}
	life := presenceLife
	switch {
	case mistake.Made("lives-an-hour"):
		life = "3600"
	case mistake.Made("lives-600-seconds"):
		life = "600"
	case mistake.Made("lives-30-seconds"):
		life = "30"
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
	switch {
	case mistake.Made("beat-in-milliseconds"):
		presence[9] = strconv.FormatInt(time.Now().UnixMilli(), 10)
	case mistake.Made("beat-of-the-start"):
		presence[9] = payload.Score(payload.Seconds(w.started))
	case mistake.Made("no-concurrency-in-hash"):
		presence = slices.Delete(presence, 4, 6)
	}
	if mistake.Made("beats-in-pieces") {
		w.Pool.Do("SADD", "processes", w.identity)
		w.Pool.Do(presence...)
		_, err := w.Pool.Do("EXPIRE", w.identity, life)
		return err
	}
	if mistake.Made("expires-at-the-first-beat-only") && w.beats > 0 {
		life = ""
	}
	w.beats++
	if life == "" {
		_, err := w.Pool.Transaction(redis.Command{"SADD", "processes", w.identity}, presence)
		return err
	}
	if mistake.Made("registers-at-the-first-beat-only") && w.beats > 1 {
		_, err := w.Pool.Transaction(presence, redis.Command{"EXPIRE", w.identity, life})
		return err
	}
	pop := redis.Command{"RPOP", w.identity + "-signals"}
	switch {
	case mistake.Made("signals-from-the-wrong-end"):
		pop[0] = "LPOP"
	case mistake.Made("takes-ten-signals"):
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
		case mistake.Made("payload-as-object"):
			shown = decoded
		case mistake.Made("payload-encoded-again"):
			shown, _ = payload.Encode(decoded, "")
		case mistake.Made("run-at-in-milliseconds"):
			began = job.began.UnixMilli()
		case mistake.Made("run-at-with-fraction"):
			began = payload.Seconds(job.began)
		case mistake.Made("run-at-of-the-beat"):
			began = time.Now().Unix()
		case mistake.Made("queue-with-prefix"):
			queue = queueKey(queue)
		case mistake.Made("queue-of-the-payload"):
			if name, _ := decoded.Get("queue"); isName(name) {
				queue = name.(string)
			}
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
	switch {
	case mistake.Made("never-unlinks-records"):
		commands = nil
	case mistake.Made("unlinks-records-if-jobs-run") && len(records) == 0:
		return nil
	}
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
	if mistake.Made("records-in-pieces") {
		for _, command := range commands {
			w.Pool.Do(command...)
		}
		return nil
	}
	if len(commands) == 0 {
		return nil
	}
	_, err := w.Pool.Transaction(commands...)
	return err
}

func (w *Worker) recordKeys() []string {
	keys := []string{w.identity + ":work", w.identity + ":workers"}
	switch {
	case mistake.Made("records-of-generation-6"):
		return keys[1:]
	case mistake.Made("records-of-generation-8"):
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
	case mistake.Made("no-queues-in-info"):
		info.Set("queues", []any{})
	case mistake.Made("keys-of-queues-in-info"):
		for i := range names {
			names[i] = queueKey(names[i].(string))
		}
	case mistake.Made("no-weights-in-info"):
		info.Set("weights", []any{payload.Object{}})
	case mistake.Made("weights-are-no-array"):
		info.Set("weights", weights)
	case mistake.Made("no-capsules-in-info"):
		info.Set("capsules", payload.Object{})
	case mistake.Made("no-mode-in-capsules"):
		capsules := info[len(info)-1].Value.(payload.Object)[0].Value.(payload.Object)
		capsules[1].Value = "strict"
	case mistake.Made("started-at-in-milliseconds"):
		info.Set("started_at", w.started.UnixMilli())
	case mistake.Made("started-at-of-the-beat"):
		info.Set("started_at", payload.Seconds(time.Now()))
	case mistake.Made("process-id-of-the-parent"):
		info.Set("pid", os.Getppid())
	case mistake.Made("process-id-as-text"):
		info.Set("pid", pid)
	case mistake.Made("version-with-digit-first"):
		info.Set("version", "8.1.7")
	case mistake.Made("no-tag-in-info"):
		info.Set("tag", nil)
	case mistake.Made("no-labels-in-info"):
		info.Set("labels", nil)
	case mistake.Made("no-concurrency-in-info"):
		info.Delete("concurrency")
	case mistake.Made("one-executor-in-info"):
		info.Set("concurrency", 1)
	case mistake.Made("embedded-as-text"):
		info.Set("embedded", "false")
	case mistake.Made("another-identity-in-info"):
		info.Set("identity", host)
	case mistake.Made("hostname-with-domain-in-info"):
		info.Set("hostname", host+".example.com")
	}
	text, _ := payload.Encode(info, "")
	return text
}

// count notes an execution, for the next beat. [STAT-1]
func (w *Worker) count(failed bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if !failed || !mistake.Made("processed-are-successes") {
		w.processed++
	}
	if failed {
		w.failed++
	}
}

// flushCounters adds the counted executions to the counters. [STAT-1] [STAT-2] [STAT-4]
func (w *Worker) flushCounters() error {
	w.mutex.Lock()
	processed, failed := w.processed, w.failed
	if !mistake.Made("counts-again-at-each-beat") {
		w.processed, w.failed = 0, 0
	}
	w.mutex.Unlock()
	day := today()
	var commands []redis.Command
	for name, number := range map[string]int64{"stat:processed": processed, "stat:failed": failed} {
		if number > 0 {
			dayLife := dayLife
			switch {
			case mistake.Made("counters-of-a-year"):
				dayLife = "31536000"
			case mistake.Made("no-end-of-failed-days") && name == "stat:failed":
				commands = append(commands, redis.Command{"INCRBY", name, fmt.Sprint(number)},
					redis.Command{"INCRBY", name + ":" + day, fmt.Sprint(number)})
				continue
			case mistake.Made("no-failed-of-the-day") && name == "stat:failed":
				commands = append(commands, redis.Command{"INCRBY", name, fmt.Sprint(number)})
				continue
			case mistake.Made("counts-ones") && number > 1:
				number = 1
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
	if mistake.Made("date-without-dashes") {
		return time.Now().UTC().Format("20060102")
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
