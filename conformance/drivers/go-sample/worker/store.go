package worker

import (
	"context"
	"time"

	"gosample/mistake"
	"gosample/payload"
	"gosample/redis"
)

// store takes jobs from Redis and stores their outcomes. There is one for each profile: basic takes
// a job out of Redis, reliable keeps it in a private hash. `again` says that the same call was made
// before and got no reply.
type store interface {
	// fetcher returns a function for one executor that takes a job, nil if none came in its time.
	fetcher() func() (*held, error)
	// comeHome ends the fetches that wait, until the channel is closed.
	comeHome(home <-chan struct{})

	done(job *held, failed, again bool) error
	retry(job *held, due float64, text string, again bool) error
	kill(job *held, set, text string, now float64, executed, again bool) error
	putBack(jobs []*held, started, again bool) error
	// poisoned deals with a job that must not run any more, and reports whether it did.
	poisoned(job *held, decoded payload.Object) bool
	// watch looks after the jobs of this and of other processes until the context ends.
	watch(ctx context.Context)
	// end gives up what the process has in Redis besides jobs.
	end() error
}

// deadLimits returns how long the dead set keeps jobs, 180 days, and its limit, which is one more than
// it keeps. [DEAD-2] [DEAD-3]
func deadLimits() (age float64, limit int) {
	age, limit = 15552000, 10000
	switch {
	case mistake.Made("dead-for-18-days"):
		age /= 10
	case mistake.Made("keeps-1000-dead"):
		limit = 1000
	}
	return age, limit
}

// Pauses between two tries after an error of the server. [ENV-11] [SRV-2]
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// persist repeats a step until it succeeds or the time of the worker is over. [ENV-6] [RETRY-23]
func (w *Worker) persist(what string, step func(again bool) error) {
	pause := firstPause
	for again := false; ; {
		err := step(again)
		if err == nil {
			return
		}
		again = again || redis.Uncertain(err) && !mistake.Made("never-tells-of-repetition")
		if mistake.Made("drops-refused-outcomes") {
			return
		}
		if redis.Uncertain(err) && mistake.Made("drops-lost-outcomes") {
			return
		}
		if mistake.Made("tries-without-pause") {
			pause = 0
		}
		w.logf("%s: %v; next try in %v", what, err, pause)
		select {
		case <-w.hopeless:
			return
		case <-time.After(pause):
			pause = min(2*pause, longestPause)
		}
	}
}
