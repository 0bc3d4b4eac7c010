// Package worker fetches and runs jobs.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"gosample/generation"
	"gosample/mistake"
	"gosample/payload"
	"gosample/redis"
	"gosample/script"
)

// storeTime is how long a worker goes on trying to store outcomes after its deadline. [SIG-7] [SIG-12]
const storeTime = 8 * time.Second

// Options are the settings of a worker.
type Options struct {
	Pool        *redis.Pool
	Scripts     script.Library
	Generation  *generation.Choice
	Queues      []Queue
	Concurrency int
	Reliable    bool          // keep jobs in a private hash while they run
	Poll        float64       // average seconds between looks for due jobs; 0: by the number of processes
	Beat        time.Duration // between two beats
	Grace       time.Duration // for running jobs at a stop
	Definitions map[string]*Definition
	Middleware  []Middleware
	Deaths      []DeathHandler
}

// Worker is one life of a worker process.
type Worker struct {
	Options
	identity string
	started  time.Time
	store    store
	alsoBeat []redis.Command // sent with each beat
	signals  chan os.Signal
	hopeless chan struct{} // closed when the time to store outcomes is over

	executors sync.WaitGroup // one for each executor whose job, if any, it settles itself

	// mutex guards what follows: "quiet" and "running" change under one lock, so that no job begins
	// after the list of running jobs was read.
	mutex             sync.Mutex
	quiet             bool
	quieten           context.CancelFunc
	running           map[*held]*held
	processed, failed int64

	lastBusy, tstp int // for mistakes
}

// Run works until a signal ends the process.
func Run(options Options) error {
	w := &Worker{
		Options: options, identity: newIdentity(), started: time.Now(),
		signals: make(chan os.Signal, 16), hopeless: make(chan struct{}), running: map[*held]*held{},
	}
	w.store = &basic{Worker: w, waiting: map[string]bool{}, unusable: map[string]time.Time{}}
	if w.Reliable {
		w.store = &reliable{Worker: w, known: map[int64]bool{}}
		w.alsoBeat = []redis.Command{{"SADD", ownersKey, w.identity}} // [REL-5]
	}
	signal.Notify(w.signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGTSTP, syscall.SIGTTIN)
	if err := w.checkServer(); err != nil {
		if errors.Is(err, errStopped) {
			return nil
		}
		return err
	}
	ctx, quieten := context.WithCancel(context.Background())
	w.quieten = quieten
	stopBeats := w.startBeats() // the first beat is the lease of the reliable profile
	if mistake.Made("names-itself-at-its-start-only") {
		w.alsoBeat = nil
	}
	go w.store.watch(ctx)
	for i := range w.Concurrency {
		w.executors.Add(1)
		go w.executor(strconv.Itoa(i))
	}
	schedulerEnd := make(chan struct{})
	go func() {
		defer close(schedulerEnd)
		w.schedule(ctx)
	}()
	for name := range w.signals {
		switch name {
		case syscall.SIGTSTP:
			if w.tstp++; w.tstp == 1 && mistake.Made("quiet-at-the-second-signal") {
				continue
			}
			w.becomeQuiet()
		case syscall.SIGTTIN:
			w.dump()
		default:
			w.stop(schedulerEnd)
			stopBeats()
			return w.leave()
		}
	}
	return nil
}

// errStopped means that a signal ended a worker before its start.
var errStopped = errors.New("stopped before the server answered")

// checkServer refuses a server that cannot serve the protocol. [ENV-1] [ENV-8]
func (w *Worker) checkServer() error {
	var reply any
	pause := firstPause
	for {
		var err error
		if reply, err = w.Pool.Do("INFO"); err == nil {
			break
		}
		if redis.HasCode(err, "NOAUTH", "WRONGPASS", "MOVED", "CROSSSLOT") {
			return err
		}
		if redis.HasCode(err, "NOPERM", "ERR") && !strings.Contains(err.Error(), "max number of clients") {
			w.logf("warning: the version of the server is unknown: %v [ENV-15]", err)
			return nil
		}
		w.logf("no server: %v; next try in %v", err, pause)
		select {
		case signal := <-w.signals:
			if signal == syscall.SIGTERM || signal == syscall.SIGINT {
				return errStopped
			}
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
		}
	}
	facts := map[string]string{}
	text, _ := reply.(string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		facts[name] = value
	}
	var major, minor int
	version := facts["redis_version"]
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 {
		w.logf("warning: the version of the server is unknown [ENV-15]")
	} else if mistake.Made("takes-any-version") {
		w.logf("version %s", version)
	} else if mistake.Made("names-no-version") && (major < 6 || major == 6 && minor < 2) {
		return errors.New("the server is too old")
	} else if major < 6 || major == 6 && minor < 2 {
		return fmt.Errorf("the server has version %s; at least 6.2 is needed [ENV-1]", version)
	}
	if mistake.Made("serves-a-cluster") {
		return nil
	}
	if facts["cluster_enabled"] == "1" || facts["redis_mode"] == "cluster" {
		return errors.New("the server is in cluster mode, where queues cannot be served [ENV-8]")
	}
	if policy := facts["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		w.logf("warning: maxmemory-policy is %s; the server may delete jobs; use noeviction [ENV-2]", policy)
	}
	return nil
}

// startBeats sends the first beat, and more until the returned function is called.
func (w *Worker) startBeats() (stop func()) {
	tell := func() {
		if err := w.beat(); err != nil {
			w.logf("beat: %v", err)
		}
	}
	if !mistake.Made("first-beat-late") {
		tell()
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(w.betweenBeats()):
				tell()
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// betweenBeats returns the time between two beats.
func (w *Worker) betweenBeats() time.Duration {
	switch {
	case mistake.Made("beats-every-14-seconds"):
		return 14 * w.Beat / 10
	case mistake.Made("beats-rarely-when-quiet") && w.isQuiet():
		return 10 * w.Beat
	}
	return w.Beat
}

// executor runs one job after the other until the worker is quiet.
func (w *Worker) executor(id string) {
	fetch := w.store.fetcher()
	pause := firstPause
	for !w.isQuiet() {
		job, err := fetch()
		if err != nil {
			w.logf("fetch: %v; next try in %v", err, pause)
			if mistake.Made("ends-after-an-error") {
				break
			}
			time.Sleep(pause)
			pause = min(2*pause, longestPause)
			continue
		}
		pause = firstPause
		if job != nil {
			job.executor = id
			w.execute(job)
			w.mutex.Lock()
			mine := job.state != returned
			w.mutex.Unlock()
			if !mine { // the stop did not wait for this executor
				return
			}
		}
	}
	w.executors.Done()
}

// begin marks a job as running, unless the worker is quiet. [FETCH-5]
func (w *Worker) begin(job *held) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.quiet {
		return false
	}
	job.state, job.began = running, time.Now()
	w.running[job] = job
	return true
}

// finish makes the executor the owner of the outcome, unless the stop was faster.
func (w *Worker) finish(job *held) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if job.state != running {
		return false
	}
	job.state = storing
	return true
}

// settled ends a job whose outcome is stored.
func (w *Worker) settled(job *held) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.running, job)
}

func (w *Worker) isQuiet() bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.quiet
}

// becomeQuiet ends fetches and promotions for good. [SIG-2]
func (w *Worker) becomeQuiet() {
	w.mutex.Lock()
	was := w.quiet
	w.quiet = true
	w.mutex.Unlock()
	if was {
		return
	}
	w.logf("quiet")
	if !mistake.Made("promotes-when-quiet") {
		w.quieten()
	}
	home := make(chan struct{})
	go func() {
		w.executors.Wait()
		close(home)
	}()
	go w.store.comeHome(home)
}

// stop goes through the steps of list 17-1, up to the last counters. [SIG-1]
func (w *Worker) stop(schedulerEnd <-chan struct{}) {
	grace, storeTime := w.Grace, storeTime
	switch {
	case mistake.Made("twice-the-grace"):
		grace *= 2
	case mistake.Made("grace-and-15-seconds"):
		grace += 15 * time.Second
	case mistake.Made("stores-for-ever"), mistake.Made("waits-for-a-long-fetch"):
		storeTime = time.Hour
	}
	deadline := time.After(grace)
	time.AfterFunc(grace+storeTime, func() { close(w.hopeless) })
	w.becomeQuiet()
	home := make(chan struct{})
	go func() {
		w.executors.Wait()
		<-schedulerEnd
		close(home)
	}()
	select {
	case <-home:
		return
	case <-deadline:
	}
	if mistake.Made("puts-nothing-back") {
		return
	}
	unfinished := w.claimRunning()
	if mistake.Made("fails-what-it-aborts") {
		for _, job := range unfinished {
			decoded, _ := payload.Decode(job.text)
			w.fail(job, decoded, nil, failure{class: "context.Canceled", message: "context canceled"})
		}
		return
	}
	if mistake.Made("counts-what-it-aborts") {
		for range unfinished {
			w.count(true)
		}
	}
	if len(unfinished) > 0 {
		w.logf("putting %d jobs back", len(unfinished))
		w.persist("put back", func(again bool) error {
			return w.store.putBack(unfinished, !mistake.Made("puts-back-as-not-started"), again)
		})
		for _, job := range unfinished { // only now [SIG-5]
			if job.cancel != nil {
				job.cancel()
			}
			w.settled(job)
			w.executors.Done()
		}
	}
	select {
	case <-home:
	case <-w.hopeless:
	}
}

// claimRunning makes the stop the owner of all jobs that still run.
func (w *Worker) claimRunning() (jobs []*held) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for job := range maps.Keys(w.running) {
		if job.state == running {
			job.state = returned
			jobs = append(jobs, job)
		}
	}
	slices.SortFunc(jobs, func(a, b *held) int { return b.began.Compare(a.began) }) // the oldest runs next
	return jobs
}

// leave writes the last counters and removes the process. [STAT-5] [BEAT-7] [BEAT-20]
func (w *Worker) leave() error {
	var problems []error
	if !mistake.Made("forgets-the-last-counters") {
		problems = append(problems, w.flushCounters())
	}
	problems = append(problems, w.store.end())
	commands := []redis.Command{
		{"SREM", "processes", w.identity},
		append(redis.Command{"UNLINK"}, w.recordKeys()...),
	}
	switch {
	case mistake.Made("leaves-itself-registered"):
		commands = commands[1:]
	case mistake.Made("leaves-records-of-generation-6"):
		commands[1] = commands[1][:2]
	}
	_, err := w.Pool.Transaction(commands...)
	if err := errors.Join(append(problems, err)...); err != nil {
		w.logf("end: %v", err)
	}
	return nil
}

// obey acts on an entry of the list of signals. [SIG-6] [SIG-10]
func (w *Worker) obey(name string) {
	known := map[string]os.Signal{
		"TSTP": syscall.SIGTSTP, "TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "TTIN": syscall.SIGTTIN,
	}
	switch {
	case mistake.Made("stops-at-ttin-through-redis"):
		known["TTIN"] = syscall.SIGTERM
	case mistake.Made("stops-at-unknown-signals") && known[name] == nil:
		known[name] = syscall.SIGTERM
	}
	if signal, ok := known[name]; ok {
		w.signals <- signal
	}
}

// dump writes the stacks of all goroutines to the log. [SIG-3]
func (w *Worker) dump() {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	log.Printf("%s", stacks)
}

// logf writes one line to the log. [SEC-6]
func (w *Worker) logf(format string, values ...any) {
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, fmt.Sprintf(format, values...))
	log.Print(line)
}
