package worker

import (
	"context"
	"time"

	"gosample/payload"
)

// Job is what the code of a job sees. Its arguments are its own copy.
type Job struct {
	JID  any // of any type, nil if the payload has none
	Args []any
}

// Definition is what a worker knows about a class.
type Definition struct {
	Run func(context.Context, *Job) error
	// Retry is the `retry` of payloads without one: nil (for true), bool or int.
	Retry any
	// Delay answers how long to wait before a retry.
	Delay func(job payload.Object, count int64, err error) (Wish, error)
	// Exhausted is called before an exhausted job goes to the dead set.
	Exhausted func(job payload.Object, err error) error
}

// Wish is the answer of a Delay: an end, or seconds whose fraction is cut off. 0 and below mean the
// default.
type Wish struct {
	Seconds       float64
	Discard, Kill bool
}

// DeathHandler is called when a job is exhausted, dropped or discarded.
type DeathHandler func(job payload.Object, err error) error

// Middleware runs around each execution. Without a call of next, the job counts as done.
type Middleware func(job *Job, next func() error) error

// held is a job that this process has taken and not settled.
type held struct {
	queue string // bare name of the list it came from
	text  string // exact bytes
	field string // of the private hash, in the reliable profile

	recoveries int // how often it ended its process, in the reliable profile

	executor string
	began    time.Time
	state    state
	cancel   context.CancelFunc
}

// state tells which goroutine owns the outcome of a job. It changes under the mutex of the worker.
type state int

const (
	waiting  state = iota // taken, not begun
	running               // its executor runs it
	storing               // its executor stores the outcome
	returned              // the stop has put it back; its executor drops the outcome
)
