/* A model of the reliable profile: SPEC.md, section 19. `.ci/release-check model` checks it with spin.
 *
 * Two or three processes share one or two jobs. Every step that may happen next is tried, in every
 * order, with every combination of a few faults. docs/explanation/model.md has the results, the
 * planted mistakes and what the model leaves out.
 *
 *   redis.pml     the keys, the properties
 *   scripts.pml   one step for each script in lua/
 *   worker.pml    a process: threads, heartbeat, audit, recovery, poller, its end
 *   faults.pml    crashes, silences, late messages, a server that forgets
 *
 * Bounds and parts are set with -D:
 *   PROCESSES JOBS FIELDS   processes, jobs, and private entries of a process at a time
 *   FAULTS                  faults of all kinds in one history
 *   RETRIES                 runs that end with `retry` or `requeue`, of all jobs
 *   LOOKS                   audits of a process that knows all its entries
 *   KILLS REQUEUES STOPS RESTORE   more outcomes, processes that stop, a server that forgets
 * A planted mistake is one more name. Each #ifdef and #ifndef with another name is one.
 *
 * Time is left out: what may happen at some time may happen at any time.
 */
#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef JOBS
#define JOBS 1
#endif
#ifndef FIELDS
#define FIELDS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef RETRIES
#define RETRIES 0
#endif
#ifndef LOOKS
#define LOOKS 0
#endif

#include "redis.pml"
#include "scripts.pml"
#include "worker.pml"
#include "faults.pml"

init {
  d_step {
    for (i_ : 0 .. JOBS - 1) { queue[i_] = 1 }
    for (i_ : 0 .. ENTRIES - 1) { closed[i_] = 1 }
    for (i_ : 0 .. PROCESSES - 1) { lease[i_] = 1; owners[i_] = 1 }
    i_ = 0
  }
  atomic {
    for (i_ : 0 .. ENTRIES - 1) { run Thread(i_) }
    for (i_ : 0 .. PROCESSES - 1) {
      run Heartbeat(i_);
      run Fate(i_);
#if RETRIES > 0
      run Poller(i_);
#endif
      for (e_ : 0 .. PROCESSES - 1) {
        if
        :: i_ != e_ -> run Recovery(i_, e_)
        :: else
        fi
      }
    }
    i_ = 0; e_ = 0;
#ifdef RESTORE
    run Server();
#endif
    run Network()
  }
  /* True when no process can do anything. */
  timeout ->
    d_step {
      none_stuck = SETTLED;
      assert(none_stuck)
    }
}

/* The same for every history, including those without an end. */
#ifdef LIVENESS
ltl settles { <> [] (SETTLED) }
#endif
