/* scripts.pml: one step for each script in lua/, with the same name.
 *
 * A call that finds nothing to do changes nothing. Where the model leaves out such calls, the
 * check of the script is a condition of its caller, and the script says so.
 */
mtype = { DONE, RETRY, KILL, REQUEUE, FETCH, PUT_BACK, BEAT, RECOVER, PROMOTE };

bit begun;              /* a job has been fetched */
hidden byte r_;

/* HDEL returned 1. */
inline remove_entry(e) {
  one_winner = !closed[e];
  assert(one_winner);
  closed[e] = 1;
  lapsed[e] = 0;
  private[e] = 0
}

/* An outcome removes the entry of job j. */
inline end_entry(e, j) {
  own_outcome = ended[j] && private[e] == j + 1;
  assert(own_outcome);
  remove_entry(e)
}

/* [REL-1] [REL-14] [REL-16] Condition: the process has a lease, and its queue has the job. */
inline fetch_lua(e, j) {
  printf("fetch.lua: process %d takes job %d as entry %d\n", OWNER(e), j, FIELD(e));
  queue[j]--;
#ifdef FETCH_IN_TWO_STEPS
  check_places();
#endif
  private[e] = j + 1;
#ifndef OWNER_NAMED_AT_START_ONLY
  owners[OWNER(e)] = 1;
#endif
  closed[e] = 0;
  begun = 1;
  check_places()
}

/* [REL-2] */
inline done_lua(e, j) {
  if
  :: private[e] != 0 ->
     printf("done.lua: process %d ends entry %d\n", OWNER(e), FIELD(e));
     finished[private[e] - 1]++;
     end_entry(e, j)
  :: else -> printf("done.lua: process %d has no entry %d\n", OWNER(e), FIELD(e));
#ifdef COUNTS_WHAT_IT_LOST
     remove_entry(e)
#else
     skip
#endif
  fi
}

/* [REL-2] [RETRY-9] [DEAD-1] [ITER-4] */
inline finish_lua(type, e, j) {
  if
#ifdef RETRY_WITHOUT_OWNERSHIP
  :: type == RETRY ->
     printf("finish.lua: process %d stores job %d, and deletes entry %d\n", OWNER(e), j, FIELD(e));
     retry[j]++;
     private[e] = 0
  :: type != RETRY && private[e] != 0 ->
#else
  :: private[e] != 0 ->
#endif
     end_entry(e, j);
#ifdef ACKNOWLEDGE_BEFORE_RETRY
     check_places();
#endif
     if
     :: type == RETRY ->
        printf("finish.lua: process %d moves entry %d to the retry set\n", OWNER(e), FIELD(e));
        retry[j]++;
        ran[j] = 0; ended[j] = 0
     :: type == KILL ->
        printf("finish.lua: process %d moves entry %d to the dead set\n", OWNER(e), FIELD(e));
        dead[j]++
     :: type == REQUEUE ->
        printf("finish.lua: process %d moves entry %d to its queue\n", OWNER(e), FIELD(e));
        queue[j]++;
        ran[j] = 0; ended[j] = 0
     fi
  :: else -> printf("finish.lua: process %d has no entry %d\n", OWNER(e), FIELD(e))
  fi
}

/* [REL-2] [SIG-5], of one entry */
inline put_back_lua(e) {
  if
  :: private[e] != 0 ->
     printf("put_back.lua: process %d returns entry %d to its queue\n", OWNER(e), FIELD(e));
     queue[private[e] - 1]++;
#ifndef PUT_BACK_WITHOUT_DELETE
     remove_entry(e);
#endif
     check_places()
  :: else -> printf("put_back.lua: process %d has no entry %d\n", OWNER(e), FIELD(e))
  fi
}

/* [REL-4] [REL-11] [REL-20], of the entries that its caller saw in the hash of process p */
inline recover_lua(p, seen) {
  if
#ifdef RECOVERY_WITHOUT_LEASE_CHECK
  :: true ->
#else
  :: !lease[p] ->
#endif
     printf("recover.lua: process %d has no lease\n", p);
     for (r_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
       if
#ifdef RECOVERY_PUSHES_ITS_COPY
       :: IN(seen, r_) ->
          printf("recover.lua: a copy of entry %d of process %d returns to its queue\n", FIELD(r_), p);
          queue[copy[r_] - 1]++;
          private[r_] = 0;
          check_places()
#else
       :: IN(seen, r_) && private[r_] != 0 ->
          printf("recover.lua: entry %d of process %d returns to its queue\n", FIELD(r_), p);
          if
          :: !lease[p] && lapsed[r_] -> excuse[private[r_] - 1]++
          :: else
          fi;
          queue[private[r_] - 1]++;
          remove_entry(r_)
#endif
       :: else
       fi
     }
     r_ = 0;
     if
#ifdef RECOVERY_FORGETS_OWNER
     :: true -> owners[p] = 0
#else
     :: HLEN_IS_0(p) -> owners[p] = 0
     :: else
#endif
     fi;
     check_places()
  :: else -> printf("recover.lua: process %d has a lease\n", p)
  fi
}

/* [SCHED-5] */
inline promote_lua(j) {
#ifdef PROMOTION_WITHOUT_REMOVAL_CHECK
  printf("promote.lua: job %d is pushed, even if ZREM removed nothing\n", j);
  retry[j] = 0;
  queue[j]++;
  check_places()
#else
  if
  :: retry[j] > 0 ->
     printf("promote.lua: job %d moves to its queue\n", j);
     retry[j]--;
#ifdef PROMOTION_REMOVES_FIRST
     check_places();
#endif
     queue[j]++;
     check_places()
  :: else -> printf("promote.lua: job %d is not there\n", j)
  fi
#endif
}

/* [SCHED-9] */
inline kill_due_lua(j) {
  if
  :: retry[j] > 0 ->
     printf("kill_due.lua: job %d moves to the dead set\n", j);
     retry[j]--;
     dead[j]++;
     check_places()
  :: else -> printf("kill_due.lua: job %d is not there\n", j)
  fi
}

inline outcome_lua(type, e, j) {
  if
  :: type == DONE -> done_lua(e, j)
  :: else         -> finish_lua(type, e, j)
  fi;
  check_places()
}
