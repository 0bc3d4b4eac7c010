/* worker.pml: a process of the reliable profile. Its threads, its heartbeat, its poller. */

/* mode[p] */
#define UP      0       /* fetches and runs jobs */
#define QUIET   1       /* told to stop: starts no more jobs, outcomes are still stored */
#define LISTED  2       /* leaving: has read its private hash */
#define RETURNED 3      /* leaving: has put back the entries of the list */
#define RESIGNED 4      /* leaving: has given up its lease */
#define DOWN    5       /* stopped or crashed; its memory is gone */

/* stage[e]: what the process knows about the entry */
#define UNKNOWN    0    /* nothing */
#define ANSWERED   1    /* the server has carried out the fetch, its reply can still be read */
#define WAITING    2    /* in the buffer */
#define RUNNING    3
#define ENDED      4    /* the outcome is decided and not acknowledged */
#define UNANSWERED 5    /* a fetch or put back got no reply; the job will not run here */

byte mode[PROCESSES];
byte stage[ENTRIES];
byte job[ENTRIES];      /* the job that the process fetched under this number */
byte outcome[ENTRIES];
byte retries = RETRIES; /* how many more runs may end with a retry or a requeue, of all jobs */
byte faults = FAULTS;   /* how many more faults may happen, of all kinds */

/* The audit [REL-8] */
byte held[PROCESSES];     /* the entries that it read, or those to put back */
byte suspects[PROCESSES]; /* the entries that its last comparison did not know */
byte auditing[PROCESSES]; /* 0 idle, 1 has read the hash, 2 has entries to put back */
byte looks = LOOKS;       /* how many more audits may begin although all entries are known */

/* Recovery of process p by process q [REL-4] */
#define PAIR(q, p) ((q) * PROCESSES + (p))
bit  looked[PROCESSES * PROCESSES];
byte found[PROCESSES * PROCESSES];  /* the entries that q saw */
#ifdef RECOVERY_PUSHES_ITS_COPY
byte copy[ENTRIES];                 /* what q read, in place of what is there */
#endif

/* Members that the poller of p saw in `retry` */
byte due[PROCESSES];

/* One message whose connection is lost: the server may carry it out at any later time. */
#define FETCH    5
#define PUT_BACK 6
#define BEAT     7
#define RECOVER  8
#define PROMOTE  9
byte late;              /* the type of the message; 0: none. Outcomes have their own type. */
byte late_entries;
byte late_owner;
byte late_job;

bit  begun;             /* a job has been fetched */

hidden byte t_, u_;

#define FAULT     (begun && faults > 0)
#define CAN_DELAY (FAULT && late == 0)
#define HEARTBEAT(p) (mode[p] == UP || mode[p] == QUIET)
#define NEEDS_AUDIT(e) (private[e] != 0 && (stage[e] == UNKNOWN || stage[e] == UNANSWERED))
#if FIELDS == 1
#define ANY_UNKNOWN(p) NEEDS_AUDIT(ENTRY(p, 0))
#else
#define ANY_UNKNOWN(p) (NEEDS_AUDIT(ENTRY(p, 0)) || NEEDS_AUDIT(ENTRY(p, 1)))
#endif

/* A sequence number that nothing refers to is as good as one that was never used. */
#if PROCESSES == 2
#define IN_RECOVERY(e) (IN(found[1], e) || IN(found[2], e))
#else
#define IN_RECOVERY(e) (IN(found[1], e) || IN(found[2], e) || IN(found[3], e) || \
                        IN(found[5], e) || IN(found[6], e) || IN(found[7], e))
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
  !IN(held[OWNER(e)], e) && !IN(suspects[OWNER(e)], e) && !IN_RECOVERY(e) && !IN_SNAPSHOT(e))
#endif
/* The numbers of a process are alike, so it takes the lowest that is unused. */
#define IS_NEXT(e) (IS_UNUSED(e) && (FIELD(e) == 0 || !IS_UNUSED(e - 1)))

#ifdef FETCH_WITHOUT_LEASE
#define HAS_LEASE(e) 1
#else
#define HAS_LEASE(e) (lease[OWNER(e)])
#endif
/* Processes and jobs are alike, so let the first fetch be that of job 0 by process 0. */
#define MAY_FETCH(e) (mode[OWNER(e)] == UP && IS_NEXT(e) && HAS_LEASE(e) && (begun || e == 0))

inline forget_entry(e) {
  stage[e] = UNKNOWN; job[e] = 0; outcome[e] = 0
}

inline take(e, j) {
  fetch_lua(e, j);
  stage[e] = ANSWERED;
  job[e] = j
}

inline begin_run(e) {
  printf("process %d runs job %d, entry %d\n", OWNER(e), job[e], FIELD(e));
  run_explained = (!ran[job[e]] || excuse[job[e]] > 0);
  assert(run_explained);
  if
  :: ran[job[e]] -> excuse[job[e]]--
  :: else -> ran[job[e]] = 1
  fi;
  stage[e] = RUNNING
}

inline end_run(e, kind) {
  printf("process %d: the run of job %d ends\n", OWNER(e), job[e]);
  ended[job[e]] = 1;
  stage[e] = ENDED;
  outcome[e] = kind
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

inline delay(kind, entries, owner, j) {
  printf("process %d: connection lost; the server sees the message late (type %d, job %d)\n", owner, kind, j);
  spend_fault();
  late = kind; late_entries = entries; late_owner = owner; late_job = j
}

/* The process itself lets others run a job that it has started: it stops, or it dies. */
inline excuse_started(e) {
  if
  :: private[e] == job[e] + 1 && (stage[e] == RUNNING || stage[e] == ENDED) ->
     excuse[job[e]]++
  :: else
  fi
}

/* The process is gone: its memory, its threads, what it was about to do. */
inline end_process(p) {
  for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
    excuse_started(t_);
    forget_entry(t_)
  }
  for (t_ : 0 .. PROCESSES - 1) {
    looked[PAIR(p, t_)] = 0;
    found[PAIR(p, t_)] = 0
  }
  t_ = 0;
  printf("process %d is gone\n", p);
  mode[p] = DOWN; held[p] = 0; suspects[p] = 0; auditing[p] = 0; due[p] = 0
}

/* A thread, or an async task: one private entry at a time. */
proctype Thread(byte e) {
end:
  do
  /* fetch.lua */
  :: d_step { MAY_FETCH(e) && queue[0] > 0 -> take(e, 0) }
#if JOBS > 1
  :: d_step { MAY_FETCH(e) && begun && queue[1] > 0 -> take(e, 1) }
#endif
  :: d_step { MAY_FETCH(e) && CAN_DELAY -> delay(FETCH, 1 << e, OWNER(e), 0); stage[e] = UNANSWERED }
  :: d_step { stage[e] == ANSWERED ->
       printf("process %d reads the reply to the fetch of entry %d\n", OWNER(e), FIELD(e));
       stage[e] = WAITING }
  :: d_step { stage[e] == ANSWERED && FAULT ->
       printf("process %d: the reply to the fetch of entry %d is lost\n", OWNER(e), FIELD(e));
       spend_fault(); stage[e] = UNANSWERED; job[e] = 0 }

  /* The run. */
#ifdef ACKNOWLEDGE_BEFORE_RUN
  :: d_step { stage[e] == WAITING && mode[OWNER(e)] == UP ->
       done_lua(e, job[e]); check_places(); begin_run(e) }
#else
  :: d_step { stage[e] == WAITING && mode[OWNER(e)] == UP -> begin_run(e) }
#endif
  :: d_step { stage[e] == RUNNING -> end_run(e, DONE) }
#ifdef KILLS
  :: d_step { stage[e] == RUNNING -> end_run(e, KILL) }
#endif
  :: d_step { stage[e] == RUNNING && retries > 0 -> retries--; end_run(e, RETRY) }
#ifdef REQUEUES
  :: d_step { stage[e] == RUNNING && retries > 0 -> retries--; end_run(e, REQUEUE) }
#endif

  /* The outcome: stored and acknowledged, stored without a reply, or on its way for long. An
   * outcome without a reply is sent again. */
  :: d_step { stage[e] == ENDED -> outcome_lua(outcome[e], e, job[e]); forget_entry(e) }
  :: d_step { stage[e] == ENDED && FAULT && private[e] != 0 ->
       printf("process %d: the reply to this outcome is lost\n", OWNER(e));
       spend_fault(); outcome_lua(outcome[e], e, job[e])
#ifdef OUTCOME_SENT_ONCE
       ; forget_entry(e)
#endif
     }
  :: d_step { stage[e] == ENDED && CAN_DELAY -> delay(outcome[e], 1 << e, OWNER(e), job[e])
#ifdef OUTCOME_SENT_ONCE
       ; forget_entry(e)
#endif
     }

  /* A job that has waited for too long, or that waits in a process that stops, goes back. */
  :: d_step { stage[e] == WAITING && mode[OWNER(e)] != UP -> put_back_lua(e); forget_entry(e) }
  :: d_step { stage[e] == WAITING && FAULT -> spend_fault(); put_back_lua(e); forget_entry(e) }
  :: d_step { stage[e] == WAITING && CAN_DELAY ->
       delay(PUT_BACK, 1 << e, OWNER(e), 0)
#ifndef RUNS_WHAT_IT_PUT_BACK
       ; stage[e] = UNANSWERED; job[e] = 0
#endif
     }
  /* Entries of calls without a reply can go back at once. [REL-8] */
  :: d_step { stage[e] == UNANSWERED && HEARTBEAT(OWNER(e)) && private[e] != 0 -> put_back_lua(e) }
  :: d_step { stage[e] == UNANSWERED -> stage[e] = UNKNOWN }
  /* Time is up: a job that runs goes back, and its run goes on. [SIG-5] */
  :: d_step { stage[e] == RUNNING && mode[OWNER(e)] == QUIET && private[e] != 0 ->
       excuse_started(e); put_back_lua(e) }
  od
}

/* The heartbeat thread: lease, audit, the end of the process. */
proctype Heartbeat(byte p) {
end:
  do
  /* The beat, a transaction. [REL-3] [REL-5] */
  :: d_step { HEARTBEAT(p) && (!lease[p] || !owners[p]) ->
       printf("process %d beats\n", p);
       lease[p] = 1
#ifndef OWNER_NAMED_AT_START_ONLY
       ; owners[p] = 1
#endif
     }
  :: d_step { HEARTBEAT(p) && CAN_DELAY -> delay(BEAT, 0, p, 0) }

#ifndef NO_AUDIT
  /* The audit reads the hash, then its own records. [REL-8] */
  :: d_step { HEARTBEAT(p) && auditing[p] == 0 &&
              (suspects[p] != 0 || ANY_UNKNOWN(p) || (looks > 0 && !HLEN_IS_0(p))) ->
       printf("audit of process %d: reads its private hash\n", p);
       if
       :: suspects[p] == 0 && !ANY_UNKNOWN(p) -> looks--
       :: else
       fi;
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: private[t_] != 0 -> held[p] = held[p] | (1 << t_)
         :: else
         fi
       }
       t_ = 0;
       auditing[p] = 1 }
  :: d_step { auditing[p] == 1 ->
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: stage[t_] == UNKNOWN || stage[t_] == UNANSWERED
#ifdef AUDIT_FORGETS_OUTCOMES
            || stage[t_] == ENDED
#endif
#ifdef AUDIT_FORGETS_FETCHES
            || stage[t_] == ANSWERED
#endif
         :: else -> held[p] = held[p] & ~(1 << t_)
         fi
       }
       t_ = 0;
       printf("audit of process %d: does not know the entries %d (bits)\n", p, held[p]);
       u_ = held[p] & suspects[p];
       suspects[p] = held[p];
       held[p] = u_;
       auditing[p] = (u_ != 0 -> 2 : 0);
       u_ = 0 }
  :: d_step { auditing[p] == 2 && mode[p] != DOWN ->
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: IN(held[p], t_) -> put_back_lua(t_)
         :: else
         fi
       }
       t_ = 0;
       held[p] = 0; auditing[p] = 0 }
  :: d_step { auditing[p] == 2 && mode[p] != DOWN && CAN_DELAY ->
       delay(PUT_BACK, held[p], p, 0); held[p] = 0; auditing[p] = 0 }
#endif

  /* The end of the process: it puts back everything, gives up its lease, then its place among
   * the owners if its hash is empty. */
  :: d_step { mode[p] == QUIET && auditing[p] == 0 ->
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: private[t_] != 0 -> held[p] = held[p] | (1 << t_)
         :: else
         fi
       }
       t_ = 0;
       printf("process %d leaves: reads its private hash\n", p);
       mode[p] = LISTED }
  :: d_step { mode[p] == LISTED ->
       for (u_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: IN(held[p], u_) -> excuse_started(u_); put_back_lua(u_)
         :: else
         fi
       }
       u_ = 0;
       held[p] = 0;
       mode[p] = RETURNED }
#ifdef OWNER_RESIGNS_IN_TWO_STEPS
  :: d_step { mode[p] == RETURNED && HLEN_IS_0(p) ->
       printf("process %d: HLEN is 0\n", p);
       mode[p] = RESIGNED }
  :: d_step { mode[p] == RETURNED && !HLEN_IS_0(p) -> lease[p] = 0; end_process(p) }
  :: d_step { mode[p] == RESIGNED ->
       printf("process %d: SREM from the owners\n", p);
       owners[p] = 0; end_process(p); check_places() }
#else
  :: d_step { mode[p] == RETURNED ->
       printf("process %d gives up its lease\n", p);
       lease[p] = 0; mode[p] = RESIGNED }
  :: d_step { mode[p] == RESIGNED -> recover_lua(p, 0); end_process(p) }
#endif
  od
}

/* Process q looks for the entries of process p. [REL-4] [REL-5] */
proctype Recovery(byte q, p) {
end:
  do
  :: d_step { HEARTBEAT(q) && !looked[PAIR(q, p)] && owners[p] && !lease[p] ->
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: private[t_] != 0 -> found[PAIR(q, p)] = found[PAIR(q, p)] | (1 << t_)
#ifdef RECOVERY_PUSHES_ITS_COPY
            ; copy[t_] = private[t_]
#endif
         :: else
         fi
       }
       t_ = 0;
       printf("process %d reads the entries of process %d: %d (bits)\n", q, p, found[PAIR(q, p)]);
       looked[PAIR(q, p)] = 1 }
  :: d_step { looked[PAIR(q, p)] ->
       recover_lua(p, found[PAIR(q, p)]); found[PAIR(q, p)] = 0; looked[PAIR(q, p)] = 0 }
  :: d_step { looked[PAIR(q, p)] && found[PAIR(q, p)] != 0 && CAN_DELAY ->
       delay(RECOVER, found[PAIR(q, p)], p, 0); found[PAIR(q, p)] = 0; looked[PAIR(q, p)] = 0 }
  od
}

/* The poller of process p. [SCHED-5] */
proctype Poller(byte p) {
end:
  do
  :: d_step { mode[p] == UP && due[p] == 0 && DUE ->
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
  :: d_step { due[p] != 0 && CAN_DELAY -> delay(PROMOTE, 0, p, (IN(due[p], 0) -> 0 : 1)); due[p] = 0 }
  od
}
