/* reliable.pml: the reliable profile. */
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
      run Heartbeat(i_); run Fate(i_)
#if RETRIES > 0
      ; run Poller(i_)
#endif
    }
    for (i_ : 0 .. PROCESSES - 1) {
      for (e_ : 0 .. PROCESSES - 1) {
        if
        :: i_ != e_ -> run Recovery(i_, e_)
        :: else
        fi
      }
    }
    i_ = 0; e_ = 0;
    run Network()
#ifdef RESTORE
    ; run Server()
#endif
  }
  /* Nothing else can be done. */
  timeout ->
    d_step {
      none_stuck = SETTLED;
      assert(none_stuck)
    }
}

#ifdef LIVENESS
ltl settles { <> [] (SETTLED) }
#endif
