package worker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gosample/mistake"
	"gosample/payload"
	"gosample/redis"
)

// Keys of the reliable profile.
const (
	ownersKey     = "jobwire:owners"
	privatePrefix = "jobwire:private:"
	returnedKey   = "jobwire:returned"
	returnedAtKey = "jobwire:returned_at"
	recoveryKey   = "jobwire:recovery"
	recoveredStat = "jobwire:stat:recovered"
	lostStat      = "jobwire:stat:lost"
)

// returnLife is how long the returns of a job are remembered, in seconds. [REL-7]
const returnLife = 259200

// mostRecoveries is how often a job may end its process. [REL-10]
const mostRecoveries = 3

// Pauses of an executor between two fetches that brought nothing. [FETCH-10] [FETCH-11]
const (
	shortestIdle = 60 * time.Millisecond
	longestIdle  = 250 * time.Millisecond
)

// reliable is the store of the reliable profile: a job stays in the private hash of the process until
// its outcome is stored. Each step is one of the canonical scripts.
type reliable struct {
	*Worker
	mutex     sync.Mutex
	sequence  int64
	known     map[int64]bool // sequence numbers of pending fetches and of jobs that are not settled
	suspected map[string]bool

	prefetched []*held         // for a mistake
	paused     map[string]bool // for a mistake
}

// neverPaused returns the queues that were not paused when it was called first. For a mistake.
func (r *reliable) neverPaused(names []string) []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.paused == nil {
		r.paused = map[string]bool{}
		reply, _ := r.Pool.Do("SMEMBERS", "jobwire:paused")
		members, _ := reply.([]any)
		for _, name := range members {
			r.paused[name.(string)] = true
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return r.paused[name] })
}

func (r *reliable) privateKey() string { return privatePrefix + r.identity }

func (r *reliable) fetcher() func() (*held, error) {
	idle := shortestIdle
	return func() (*held, error) {
		job, err := r.fetch()
		if err != nil || job != nil {
			idle = shortestIdle
			return job, err
		}
		time.Sleep(idle)
		idle = min(2*idle, longestIdle)
		switch {
		case mistake.Made("fetches-without-pause"):
			idle = time.Millisecond
		case mistake.Made("idle-for-7-seconds"):
			idle = 7 * time.Second
		}
		return nil, nil
	}
}

// comeHome has nothing to do, because no fetch waits in the server.
func (r *reliable) comeHome(<-chan struct{}) {}

func (r *reliable) fetch() (*held, error) {
	r.mutex.Lock()
	if len(r.prefetched) > 0 {
		job := r.prefetched[0]
		r.prefetched = r.prefetched[1:]
		r.mutex.Unlock()
		return job, nil
	}
	r.mutex.Unlock()
	names := order(r.Queues)
	if len(names) == 0 {
		return nil, nil
	}
	keys := []string{r.privateKey(), r.identity, ownersKey, returnedKey, "jobwire:paused"}
	for _, name := range names {
		keys = append(keys, queueKey(name))
	}
	number := r.reserve()
	most := "1"
	if mistake.Made("takes-two-for-one-executor") {
		r.reserve()
		most = "2"
	}
	if mistake.Made("asks-for-paused-queues-at-its-start") { // and remembers the answer
		names = r.neverPaused(names)
		keys = append(keys[:4], "jobwire:paused:none")
		for _, name := range names {
			keys = append(keys, queueKey(name))
		}
	}
	arguments := append([]string{r.identity, most, strconv.FormatInt(number, 10)}, names...)
	reply, err := r.Scripts.Call(r.Pool, "fetch", keys, arguments)
	parts, hasLease := reply.([]any)
	if err != nil || !hasLease {
		r.forget(number)
		return nil, err
	}
	for broken := parts[1].([]any); len(broken) >= 2; broken = broken[2:] {
		if mistake.Made("names-no-unusable-queue") {
			break
		}
		if mistake.Made("stops-at-an-unusable-queue") {
			return nil, redis.Error(broken[1].(string))
		}
		r.logf("the key of the queue %q cannot be used; its jobs wait: %v [FETCH-7]", broken[0], broken[1])
	}
	taken := parts[0].([]any)
	if len(taken) == 0 {
		r.forget(number)
		return nil, nil
	}
	field := taken[0].(string)
	_, queue, _ := strings.Cut(field, ":")
	recoveries, _ := strconv.Atoi(taken[3].(string))
	if len(taken) > 4 { // taken for a mistake; it waits for the executor
		field, text := taken[4].(string), taken[5].(string)
		_, queue, _ := strings.Cut(field, ":")
		r.mutex.Lock()
		r.prefetched = append(r.prefetched, &held{queue: queue, text: text, field: field})
		r.mutex.Unlock()
	}
	return &held{queue: queue, text: taken[1].(string), field: field, recoveries: recoveries}, nil
}

// reserve returns a new sequence number, which is known from now on. [REL-19]
func (r *reliable) reserve() int64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.sequence++
	if mistake.Made("ten-sequence-numbers") {
		r.sequence %= 10
	}
	r.known[r.sequence] = true
	return r.sequence
}

func (r *reliable) forget(number int64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.known, number)
}

// settle forgets a job whose outcome the server has acknowledged.
func (r *reliable) settle(job *held, err error) error {
	if err == nil {
		number, _, _ := sequenceOf(job.field)
		r.forget(number)
	}
	return err
}

// counters are the four counters of an execution.
func counters() []string {
	day := today()
	return []string{"stat:processed", "stat:processed:" + day, "stat:failed", "stat:failed:" + day}
}

func (r *reliable) done(job *held, failed, again bool) error {
	keys := slices.Concat([]string{r.privateKey()}, counters(), []string{returnedKey, returnedAtKey, lostStat})
	_, err := r.Scripts.Call(r.Pool, "done", keys, []string{dayLife, digit(failed), digit(again), job.field})
	return r.settle(job, err)
}

func (r *reliable) retry(job *held, due float64, text string, again bool) error {
	if mistake.Made("retries-in-two-steps") {
		if removed, err := r.Pool.Do("HDEL", r.privateKey(), job.field); err != nil || removed == int64(0) {
			return r.settle(job, err)
		}
		r.count(true)
		_, err := r.Pool.Do("ZADD", "retry", payload.Score(due), text)
		return r.settle(job, err)
	}
	return r.finish(job, "retry", "failed", again, "", "", payload.Score(due), text)
}

func (r *reliable) kill(job *held, set, text string, now float64, executed, again bool) error {
	age, limit := deadLimits()
	if mistake.Made("kills-by-hand") {
		if executed {
			r.count(true)
		}
		_, err := r.Pool.Transaction(redis.Command{"ZADD", set, payload.Score(now), text},
			redis.Command{"HDEL", r.privateKey(), job.field})
		return r.settle(job, err)
	}
	counted := ""
	if executed {
		counted = "failed"
	}
	return r.finish(job, set, counted, again, payload.Score(now-age), strconv.Itoa(limit), payload.Score(now), text)
}

// finish moves a job into a set, whose limits are empty if it has none. [RETRY-9] [DEAD-1]
func (r *reliable) finish(job *held, set, counted string, again bool, oldest, limit, score, text string) error {
	keys := slices.Concat([]string{r.privateKey(), set}, counters(), []string{returnedKey, returnedAtKey, lostStat,
		"queues", "jobwire:stat:expired", "jobwire:cancelled"})
	_, err := r.Scripts.Call(r.Pool, "finish", keys,
		[]string{dayLife, counted, digit(again), "", oldest, limit, "3", job.field, score, text})
	return r.settle(job, err)
}

func (r *reliable) putBack(jobs []*held, started, again bool) error {
	var fields []string
	for _, job := range jobs {
		fields = append(fields, job.field)
	}
	if err := r.putFieldsBack(fields, started, again); err != nil {
		return err
	}
	for _, job := range jobs {
		r.settle(job, nil)
	}
	return nil
}

// putFieldsBack puts entries of the own private hash back, of which the last one runs first.
func (r *reliable) putFieldsBack(fields []string, started, again bool) error {
	life := "0"
	if started {
		life = strconv.Itoa(returnLife)
	}
	lists, pairs := pairsOf(fields)
	keys := append([]string{r.privateKey(), returnedKey, returnedAtKey, lostStat, "queues"}, lists...)
	_, err := r.Scripts.Call(r.Pool, "put_back", keys, append([]string{life, nowScore(), digit(again)}, pairs...))
	return err
}

// pairsOf returns the lists of some entries, and each entry with the number of its list.
func pairsOf(fields []string) (lists, pairs []string) {
	for _, field := range fields {
		_, queue, _ := sequenceOf(field)
		key := queueKey(queue)
		if !slices.Contains(lists, key) {
			lists = append(lists, key)
		}
		pairs = append(pairs, field, strconv.Itoa(slices.Index(lists, key)+1))
	}
	return lists, pairs
}

// sequenceOf splits a private field. A field of another form is not an entry. [REL-13]
func sequenceOf(field string) (number int64, queue string, ok bool) {
	digits, queue, ok := strings.Cut(field, ":")
	parsed, err := strconv.ParseUint(digits, 10, 54)
	return int64(parsed), queue, ok && err == nil
}

func digit(flag bool) string {
	if flag {
		return "1"
	}
	return "0"
}

func nowScore() string { return payload.Score(payload.Seconds(time.Now())) }

// entries returns the entries of a private hash, of which the last one runs first.
func (r *reliable) entries(identity string) (fields []string, err error) {
	reply, err := r.Pool.Do("HKEYS", privatePrefix+identity)
	if err != nil {
		return nil, err
	}
	for _, field := range reply.([]any) {
		if _, _, ok := sequenceOf(field.(string)); ok {
			fields = append(fields, field.(string))
		}
	}
	slices.SortFunc(fields, func(a, b string) int {
		first, _, _ := sequenceOf(a)
		second, _, _ := sequenceOf(b)
		return int(second - first)
	})
	return fields, nil
}

// audit puts back the own entries that two looks in a row did not know. [REL-8]
func (r *reliable) audit() error {
	fields, err := r.entries(r.identity) // the hash first, and only then what is known
	if err != nil {
		return err
	}
	var strangers []string
	suspected := map[string]bool{}
	r.mutex.Lock()
	for _, field := range fields {
		if number, _, _ := sequenceOf(field); !r.known[number] {
			if r.suspected[field] {
				strangers = append(strangers, field)
			} else {
				suspected[field] = true
			}
		}
	}
	r.suspected = suspected
	r.mutex.Unlock()
	if len(strangers) == 0 {
		return nil
	}
	r.logf("putting back %d jobs whose fetch got no reply", len(strangers))
	return r.putFieldsBack(strangers, !mistake.Made("strangers-as-not-started"), false)
}

// watch looks for jobs of dead processes and for strangers, until the context ends. [REL-17]
func (r *reliable) watch(ctx context.Context) {
	go r.nameOwners(ctx)
	for first := true; ; first = false {
		switch {
		case first && mistake.Made("no-recovery-at-its-start"):
		default:
			if err := r.recover(first); err != nil {
				r.logf("recovery: %v", err)
			}
		}
		if err := r.audit(); err != nil {
			r.logf("audit: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(r.Beat, 10*time.Second)):
		}
	}
}

// recover puts back the jobs of owners without lease. One look of a fleet serves all. [REL-4]
func (r *reliable) recover(first bool) error {
	locked, err := r.Pool.Do("SET", recoveryKey, "1", "NX", "PX", "5000")
	if err != nil || locked == nil && !first {
		return err
	}
	owners, err := r.Pool.Do("SMEMBERS", ownersKey)
	if err != nil {
		return err
	}
	for _, owner := range owners.([]any) {
		identity := owner.(string)
		if identity == r.identity {
			continue
		}
		alive, err := r.Pool.Do("EXISTS", identity)
		if err != nil {
			return err
		}
		if mistake.Made("recovers-the-living") {
			r.recoverByHand(identity)
			continue
		}
		if alive == int64(0) && mistake.Made("recovers-by-hand") {
			r.recoverByHand(identity)
			continue
		}
		if alive == int64(0) {
			if err := r.recoverOwner(identity); err != nil {
				r.logf("recovery of %q: %v", identity, err)
			}
		}
	}
	if mistake.Made("never-forgets-returns") {
		return nil
	}
	old := payload.Score(payload.Seconds(time.Now()) - float64(returnLife))
	for { // until none is left, because the next look may be that of another process
		forgotten, err := r.Scripts.Call(r.Pool, "forget", []string{returnedKey, returnedAtKey}, []string{old, "1000"})
		if count, _ := forgotten.(int64); err != nil || count < 1000 {
			return err
		}
	}
}

// recoverByHand makes the mistakes of a recovery without the script.
func (r *reliable) recoverByHand(identity string) {
	fields, _ := r.entries(identity)
	for _, field := range fields {
		_, queue, _ := sequenceOf(field)
		text, err := r.Pool.Do("HGET", privatePrefix+identity, field)
		if err != nil || text == nil {
			return
		}
		r.Pool.Transaction(redis.Command{"RPUSH", queueKey(queue), text.(string)},
			redis.Command{"HDEL", privatePrefix + identity, field})
	}
	r.Pool.Do("SREM", ownersKey, identity)
}

func (r *reliable) recoverOwner(identity string) error {
	fields, err := r.entries(identity)
	if err != nil {
		return err
	}
	for {
		part := fields[:min(len(fields), batch)]
		fields = fields[len(part):]
		lists, pairs := pairsOf(part)
		keys := append([]string{privatePrefix + identity, identity, ownersKey, returnedKey, returnedAtKey,
			recoveredStat, "queues"}, lists...)
		reply, err := r.Scripts.Call(r.Pool, "recover", keys,
			append([]string{identity, strconv.Itoa(returnLife), nowScore()}, pairs...))
		if err != nil || len(fields) == 0 || reply == int64(-1) { // -1: it lives
			return err
		}
	}
}

// nameOwners names the owners of all private hashes, in case the set was deleted. [REL-18]
func (r *reliable) nameOwners(ctx context.Context) {
	for cursor := "0"; ; {
		reply, err := r.Pool.Do("SCAN", cursor, "MATCH", privatePrefix+"*", "COUNT", "1000")
		if err != nil {
			r.logf("search for private hashes: %v", err)
			return
		}
		parts := reply.([]any)
		for _, key := range parts[1].([]any) {
			r.Pool.Do("SADD", ownersKey, strings.TrimPrefix(key.(string), privatePrefix))
		}
		if cursor = parts[0].(string); cursor == "0" || mistake.Made("searches-one-page") {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// poisoned kills a job that has ended too many processes, and reports whether it did. [REL-10]
func (r *reliable) poisoned(job *held, decoded payload.Object) bool {
	if job.recoveries <= mostRecoveries {
		return false
	}
	now := time.Now()
	decoded.Set("error_message", fmt.Sprintf(
		"not run again: %d processes died while they held this job; the limit is %d", job.recoveries, mostRecoveries))
	decoded.Set("error_class", "jobwire.PoisonPill")
	when := "failed_at"
	if count, _ := decoded.Get("retry_count"); count != nil {
		when = "retried_at"
	}
	decoded.Set(when, r.Generation.Now().Time(now))
	text, _ := payload.Encode(decoded, "")
	r.persist("kill", func(again bool) error {
		return r.kill(job, "dead", text, payload.Seconds(now), mistake.Made("counts-poison"), again)
	})
	return true
}

// end puts back what is left, gives up the lease, and then the name among the owners. [REL-20] [REL-21]
func (r *reliable) end() error {
	if mistake.Made("resigns-before-it-looks") {
		r.Pool.Do("SREM", ownersKey, r.identity)
	}
	fields, err := r.entries(r.identity)
	if err != nil {
		return err
	}
	if len(fields) > 0 {
		if err := r.putFieldsBack(fields, true, false); err != nil {
			return err
		}
	}
	if !mistake.Made("keeps-its-lease") {
		if _, err := r.Pool.Do("UNLINK", r.identity); err != nil {
			return err
		}
	}
	_, err = r.Scripts.Call(r.Pool, "recover",
		[]string{r.privateKey(), r.identity, ownersKey, returnedKey, returnedAtKey, recoveredStat, "queues"},
		[]string{r.identity, strconv.Itoa(returnLife), nowScore()})
	return err
}
