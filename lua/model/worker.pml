/* worker.pml: a process of the reliable profile. */

/* mode[p] */
#define UP       0      /* fetches and runs jobs */
#define QUIET    1      /* told to stop: starts no more jobs; jobs still run and end */
#define LISTED   2      /* at its end: has read its private hash */
#define RETURNED 3      /* at its end: has put back the entries that it read */
#define RESIGNED 4      /* at its end: has given up its lease */
#define DOWN     5      /* stopped or crashed, without memory */
byte mode[PROCESSES];

/* stage[e]: what the process knows about the entry with this number */
#define UNKNOWN    0    /* nothing */
#define ANSWERED   1    /* the server carried out the fetch; the reply can be read */
#define WAITING    2    /* the job waits in the process */
#define RUNNING    3
#define ENDED      4    /* the outcome is not acknowledged */
#define UNANSWERED 5    /* no reply to a fetch or put back came; the job does not run here */
byte  stage[ENTRIES];
byte  job[ENTRIES];     /* the job, after ANSWERED */
mtype outcome[ENTRIES]; /* the outcome, after ENDED */

byte retries = RETRIES;
byte faults = FAULTS;
byte looks = LOOKS;

/* The audit of process p. [REL-8] */
byte auditing[PROCESSES]; /* 0: idle; 1: has read the hash; 2: has entries to put back */
byte listed[PROCESSES];   /* the entries that it read, or is to put back */
byte suspects[PROCESSES]; /* the entries that the last comparison did not know */

/* The recovery by process q from process p. [REL-4] */
#define PAIR(q, p) ((q) * PROCESSES + (p))
bit  looked[PROCESSES * PROCESSES]; /* has found p without a lease */
byte seen[PROCESSES * PROCESSES];   /* the entries that it read */
#ifdef RECOVERY_PUSHES_ITS_COPY
byte copy[ENTRIES];                 /* and their jobs */
#endif

byte due[PROCESSES];    /* the members of `retry` that the poller of p saw */

/* One message whose connection is lost. The server may carry it out at any later time. */
mtype late;             /* 0: there is none */
byte late_entries;
byte late_process;
byte late_job;

hidden byte t_, u_;

#define BEATS(p)  (mode[p] == UP || mode[p] == QUIET)
/* The first step cannot fail: a fault before it is like one after it. */
#define FAULT     (begun && faults > 0)
#define MAY_DELAY (FAULT && late == 0)

/* The jobs that a process may still run, or whose outcome it may still store. [REL-8] */
#if defined(AUDIT_FORGETS_OUTCOMES)
#define KNOWS(e) (stage[e] != UNKNOWN && stage[e] != UNANSWERED && stage[e] != ENDED)
#elif defined(AUDIT_FORGETS_FETCHES)
#define KNOWS(e) (stage[e] != UNKNOWN && stage[e] != UNANSWERED && stage[e] != ANSWERED)
#else
#define KNOWS(e) (stage[e] != UNKNOWN && stage[e] != UNANSWERED)
#endif
#define IS_STRAY(e) (private[e] != 0 && !KNOWS(e))
#if FIELDS == 1
#define ANY_STRAY(p) IS_STRAY(ENTRY(p, 0))
#else
#define ANY_STRAY(p) (IS_STRAY(ENTRY(p, 0)) || IS_STRAY(ENTRY(p, 1)))
#endif

/* A sequence number that nothing refers to is as good as one that was never used. */
#if PROCESSES == 2
#define WAS_SEEN(e) (IN(seen[1], e) || IN(seen[2], e))
#else
#define WAS_SEEN(e) (IN(seen[1], e) || IN(seen[2], e) || IN(seen[3], e) || \
                     IN(seen[5], e) || IN(seen[6], e) || IN(seen[7], e))
#endif
#ifdef RESTORE
#define IN_SNAPSHOT(e) (faults > 0 && old_private[e] != 0)
#else
#define IN_SNAPSHOT(e) 0
#endif
#ifdef NUMBERS_ARE_REUSED
#define IS_UNUSED(e) (stage[e] == UNKNOWN)
#else
#define IS_UNUSED(e) (stage[e] == UNKNOWN && private[e] == 0 && !IN(late_entries, e) && \
  !IN(listed[OWNER(e)], e) && !IN(suspects[OWNER(e)], e) && !WAS_SEEN(e) && !IN_SNAPSHOT(e))
#endif
/* The numbers of a process are alike: it takes the lowest. */
#define IS_NEXT(e) (IS_UNUSED(e) && (FIELD(e) == 0 || !IS_UNUSED(e - 1)))

#ifdef FETCH_WITHOUT_LEASE
#define HAS_LEASE(p) 1
#else
#define HAS_LEASE(p) lease[p]
#endif
/* Processes and jobs are alike: the first fetch is that of job 0 by process 0. */
#define MAY_FETCH(e) (mode[OWNER(e)] == UP && IS_NEXT(e) && HAS_LEASE(OWNER(e)) && (begun || e == 0))

inline forget_entry(e) {
  stage[e] = UNKNOWN; job[e] = 0; outcome[e] = 0
}

inline lose_call(e) {
  stage[e] = UNANSWERED; job[e] = 0
}

inline spend_fault() {
  faults--;
#ifdef RESTORE
  if
  :: faults == 0 -> forget_snapshot()
  :: else
  fi
#endif
}

inline delay(message, entries, p, j) {
  printf("process %d: connection lost; %e is on its way\n", p, message);
  spend_fault();
  late = message; late_entries = entries; late_process = p; late_job = j
}

inline begin_run(e) {
  printf("process %d runs job %d, entry %d\n", OWNER(e), job[e], FIELD(e));
  run_explained = !ran[job[e]] || excuse[job[e]] > 0;
  assert(run_explained);
  if
  :: ran[job[e]] -> excuse[job[e]]--
  :: else -> ran[job[e]] = 1
  fi;
  stage[e] = RUNNING
}

inline end_run(e, type) {
  printf("process %d: the run of job %d ends: %e\n", OWNER(e), job[e], type);
  ended[job[e]] = 1;
  stage[e] = ENDED;
  outcome[e] = type
}

/* A job that has started goes back, because its process stops, or is recovered, because it died. */
inline excuse_started(e) {
  if
  :: private[e] == job[e] + 1 && (stage[e] == RUNNING || stage[e] == ENDED) -> excuse[job[e]]++
  :: else
  fi
}

/* Put the entries of process p into `entries`. */
inline hkeys(p, entries) {
  for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
    if
    :: private[t_] != 0 -> entries = entries | (1 << t_)
    :: else
    fi
  }
  t_ = 0
}

inline end_process(p) {
  printf("process %d is gone\n", p);
  for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
    excuse_started(t_);
    forget_entry(t_)
  }
  for (t_ : 0 .. PROCESSES - 1) {
    looked[PAIR(p, t_)] = 0; seen[PAIR(p, t_)] = 0
  }
  t_ = 0;
  mode[p] = DOWN; auditing[p] = 0; listed[p] = 0; suspects[p] = 0; due[p] = 0
}

/* The life of one private entry in a process. */
proctype Thread(byte e) {
end:
  do
  /* A fetch. Its reply is read, or lost; or the fetch itself is late. */
  :: d_step { MAY_FETCH(e) && queue[0] > 0 -> fetch_lua(e, 0); stage[e] = ANSWERED; job[e] = 0 }
#if JOBS > 1
  :: d_step { MAY_FETCH(e) && queue[1] > 0 && begun -> fetch_lua(e, 1); stage[e] = ANSWERED; job[e] = 1 }
#endif
  :: d_step { stage[e] == ANSWERED ->
       printf("process %d reads the reply about entry %d\n", OWNER(e), FIELD(e));
       stage[e] = WAITING }
  :: d_step { stage[e] == ANSWERED && FAULT ->
       printf("process %d: the reply about entry %d is lost\n", OWNER(e), FIELD(e));
       spend_fault(); lose_call(e) }
  :: d_step { MAY_FETCH(e) && MAY_DELAY -> delay(FETCH, 1 << e, OWNER(e), 0); lose_call(e) }

  /* The run. */
#ifdef ACKNOWLEDGE_BEFORE_RUN
  :: d_step { stage[e] == WAITING && mode[OWNER(e)] == UP -> outcome_lua(DONE, e, job[e]); begin_run(e) }
#else
  :: d_step { stage[e] == WAITING && mode[OWNER(e)] == UP -> begin_run(e) }
#endif
  :: d_step { stage[e] == RUNNING -> end_run(e, DONE) }
  :: d_step { stage[e] == RUNNING && retries > 0 -> retries--; end_run(e, RETRY) }
#ifdef REQUEUES
  :: d_step { stage[e] == RUNNING && retries > 0 -> retries--; end_run(e, REQUEUE) }
#endif
#ifdef KILLS
  :: d_step { stage[e] == RUNNING -> end_run(e, KILL) }
#endif

  /* The outcome is acknowledged; or its reply is lost, or the outcome itself is late, and the
   * process sends it again. */
  :: d_step { stage[e] == ENDED -> outcome_lua(outcome[e], e, job[e]); forget_entry(e) }
#ifdef OUTCOME_SENT_ONCE
  :: d_step { stage[e] == ENDED && MAY_DELAY -> delay(outcome[e], 1 << e, OWNER(e), job[e]); forget_entry(e) }
#else
  :: d_step { stage[e] == ENDED && FAULT && private[e] != 0 ->
       printf("process %d: no reply to the next outcome\n", OWNER(e));
       outcome_lua(outcome[e], e, job[e]); spend_fault() }
  :: d_step { stage[e] == ENDED && MAY_DELAY -> delay(outcome[e], 1 << e, OWNER(e), job[e]) }
#endif

  /* A job that has waited for too long goes back. It does not run, even without a reply. */
  :: d_step { stage[e] == WAITING && mode[OWNER(e)] != UP -> put_back_lua(e); forget_entry(e) }
  :: d_step { stage[e] == WAITING && FAULT -> put_back_lua(e); spend_fault(); forget_entry(e) }
#ifdef RUNS_WHAT_IT_PUT_BACK
  :: d_step { stage[e] == WAITING && MAY_DELAY -> delay(PUT_BACK, 1 << e, OWNER(e), 0) }
#else
  :: d_step { stage[e] == WAITING && MAY_DELAY -> delay(PUT_BACK, 1 << e, OWNER(e), 0); lose_call(e) }
#endif
  /* The process may look for what such a call left, and at some time stops looking. [REL-8] */
  :: d_step { stage[e] == UNANSWERED && BEATS(OWNER(e)) && private[e] != 0 -> put_back_lua(e) }
  :: d_step { stage[e] == UNANSWERED -> stage[e] = UNKNOWN }

  /* A job that does not end in time goes back first; its run goes on. [SIG-5] */
  :: d_step { stage[e] == RUNNING && mode[OWNER(e)] == QUIET && private[e] != 0 ->
       excuse_started(e); put_back_lua(e) }
  :: d_step { stage[e] == RUNNING && mode[OWNER(e)] == QUIET && private[e] != 0 && MAY_DELAY ->
       excuse_started(e); delay(PUT_BACK, 1 << e, OWNER(e), 0) }
  od
}

/* The heartbeat, the audit, and the end of process p. */
proctype Heartbeat(byte p) {
end:
  do
  /* A beat is a transaction. One that changes nothing is left out. [REL-3] [REL-5] */
  :: d_step { BEATS(p) && (!lease[p] || !owners[p]) ->
       printf("process %d beats\n", p);
       lease[p] = 1;
#ifdef OWNER_NAMED_AT_START_ONLY
       owners[p] = owners[p]
#else
       owners[p] = 1
#endif
     }
  :: d_step { BEATS(p) && MAY_DELAY -> delay(BEAT, 0, p, 0) }

#if defined(AUDIT_READS_RECORDS_FIRST)
  :: d_step { BEATS(p) && auditing[p] == 0 && (looks > 0 || ANY_STRAY(p)) ->
       printf("audit of process %d: reads its own records\n", p);
       if
       :: !ANY_STRAY(p) -> looks--
       :: else
       fi;
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: KNOWS(t_) -> listed[p] = listed[p] | (1 << t_)
         :: else
         fi
       }
       t_ = 0;
       auditing[p] = 1 }
  :: d_step { auditing[p] == 1 ->
       printf("audit of process %d: reads the private hash, and puts back the rest\n", p);
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: !IN(listed[p], t_) -> put_back_lua(t_)
         :: else
         fi
       }
       t_ = 0;
       listed[p] = 0; auditing[p] = 0 }
#elif !defined(NO_AUDIT)
  /* The audit reads the hash, then its own records, and puts back what two comparisons in a row
   * did not know. One of known entries is tried `LOOKS` times. [REL-8] */
  :: d_step { BEATS(p) && auditing[p] == 0 &&
              (suspects[p] != 0 || ANY_STRAY(p) || (looks > 0 && !HLEN_IS_0(p))) ->
       printf("audit of process %d: reads its private hash\n", p);
       if
       :: suspects[p] == 0 && !ANY_STRAY(p) -> looks--
       :: else
       fi;
       hkeys(p, listed[p]);
       auditing[p] = 1 }
  :: d_step { auditing[p] == 1 ->
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: KNOWS(t_) -> listed[p] = listed[p] & ~(1 << t_)
         :: else
         fi
       }
       if
       :: listed[p] == 0 -> printf("audit of process %d: knows every entry\n", p)
       :: else -> printf("audit of process %d: does not know every entry\n", p)
       fi;
       u_ = listed[p] & suspects[p];
#ifdef AUDIT_REMEMBERS_NOTHING
       suspects[p] = 0;
#else
       suspects[p] = listed[p];
#endif
       listed[p] = u_;
       auditing[p] = (u_ != 0 -> 2 : 0);
       t_ = 0; u_ = 0 }
  :: d_step { auditing[p] == 2 ->
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: IN(listed[p], t_) -> put_back_lua(t_)
         :: else
         fi
       }
       t_ = 0;
       listed[p] = 0; auditing[p] = 0 }
  :: d_step { auditing[p] == 2 && MAY_DELAY ->
       delay(PUT_BACK, listed[p], p, 0); listed[p] = 0; auditing[p] = 0 }
#endif

  /* The end: put back everything, give up the lease, then the place among the owners, in the step
   * that finds the hash empty. [REL-20] [REL-21] */
  :: d_step { mode[p] == QUIET && auditing[p] == 0 ->
       printf("process %d ends: reads its private hash\n", p);
       hkeys(p, listed[p]);
       mode[p] = LISTED }
  :: d_step { mode[p] == LISTED ->
       for (u_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: IN(listed[p], u_) -> excuse_started(u_); put_back_lua(u_)
         :: else
         fi
       }
       u_ = 0;
       listed[p] = 0;
       mode[p] = RETURNED }
#ifdef OWNER_REMOVED_IN_TWO_STEPS
  :: d_step { mode[p] == RETURNED && HLEN_IS_0(p) ->
       printf("process %d ends: its private hash is empty\n", p);
       mode[p] = RESIGNED }
  :: d_step { mode[p] == RETURNED && !HLEN_IS_0(p) -> lease[p] = 0; end_process(p) }
  :: d_step { mode[p] == RESIGNED ->
       printf("process %d ends: SREM from jobwire:owners\n", p);
       owners[p] = 0; end_process(p); check_places() }
#else
  :: d_step { mode[p] == RETURNED ->
       printf("process %d ends: UNLINK of its lease\n", p);
       lease[p] = 0; mode[p] = RESIGNED }
  :: d_step { mode[p] == RESIGNED -> recover_lua(p, 0); end_process(p) }
#endif
  od
}

/* Process q recovers the jobs of process p. [REL-4] [REL-17] */
proctype Recovery(byte q, p) {
end:
  do
  :: d_step { BEATS(q) && !looked[PAIR(q, p)] && owners[p] && !lease[p] ->
       printf("process %d reads the private hash of process %d, which has no lease\n", q, p);
       hkeys(p, seen[PAIR(q, p)]);
#ifdef RECOVERY_PUSHES_ITS_COPY
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) { copy[t_] = private[t_] }
       t_ = 0;
#endif
       looked[PAIR(q, p)] = 1 }
  :: d_step { looked[PAIR(q, p)] ->
       recover_lua(p, seen[PAIR(q, p)]); seen[PAIR(q, p)] = 0; looked[PAIR(q, p)] = 0 }
  :: d_step { looked[PAIR(q, p)] && MAY_DELAY ->
       delay(RECOVER, seen[PAIR(q, p)], p, 0); seen[PAIR(q, p)] = 0; looked[PAIR(q, p)] = 0 }
  od
}

/* The poller of process p: reads due members, then moves them. [SCHED-5] */
proctype Poller(byte p) {
end:
  do
  :: d_step { mode[p] == UP && due[p] == 0 && ANY_DUE ->
       printf("process %d reads the retry set\n", p);
       for (t_ : 0 .. JOBS - 1) {
         if
         :: retry[t_] > 0 -> due[p] = due[p] | (1 << t_)
         :: else
         fi
       }
       t_ = 0 }
  :: d_step { due[p] != 0 ->
       for (t_ : 0 .. JOBS - 1) {
         if
         :: IN(due[p], t_) -> promote_lua(t_)
         :: else
         fi
       }
       t_ = 0; due[p] = 0 }
#ifdef KILLS
  :: d_step { due[p] != 0 ->
       for (t_ : 0 .. JOBS - 1) {
         if
         :: IN(due[p], t_) -> kill_due_lua(t_)
         :: else
         fi
       }
       t_ = 0; due[p] = 0 }
#endif
  :: d_step { due[p] != 0 && MAY_DELAY -> delay(PROMOTE, 0, p, (IN(due[p], 0) -> 0 : 1)); due[p] = 0 }
  od
}
