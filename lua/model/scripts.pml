/* scripts.pml: one step for each script in lua/, with the same name and effect.
 *
 * A call that finds nothing to do changes nothing. Where a step is left out for this reason, the
 * check of the script is the condition of the step: the lease for `fetch_lua`, for example.
 */

hidden byte r_;

/* The end of an entry. `hdel` is true for one caller: the one whose HDEL returned 1. [REL-2] */
inline close_entry(e) {
  one_winner = !closed[e];
  assert(one_winner);
  closed[e] = 1;
  lapsed[e] = 0
}

/* fetch.lua [REL-1] [REL-3]: the caller has checked that the process has a lease and that the job
 * is in its queue. */
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

/* done.lua [REL-2]: HDEL of the entry, whatever job is in it. */
inline done_lua(e, j) {
  if
  :: private[e] != 0 ->
     printf("done.lua: process %d ends entry %d\n", OWNER(e), FIELD(e));
     own_outcome = (private[e] == j + 1 && ended[j]);
     assert(own_outcome);
     close_entry(e);
     finished[private[e] - 1]++;
     private[e] = 0
  :: else -> printf("done.lua: process %d has no entry %d; nothing changes\n", OWNER(e), FIELD(e))
  fi
}

/* retry.lua [REL-2] [RETRY-9] */
inline retry_lua(e, j) {
  if
#ifdef RETRY_WITHOUT_OWNERSHIP
  :: true ->
     printf("retry.lua: process %d moves entry %d to the retry set\n", OWNER(e), FIELD(e));
#else
  :: private[e] != 0 ->
#endif
     own_outcome = (ended[j] && (private[e] == 0 || private[e] == j + 1));
     assert(own_outcome);
     private[e] = 0;
#ifdef ACKNOWLEDGE_BEFORE_RETRY
     check_places();
#endif
     retry[j]++;
     ran[j] = 0; ended[j] = 0;
     check_places();
     close_entry(e)
  :: else -> printf("retry.lua: process %d has no entry %d; nothing changes\n", OWNER(e), FIELD(e))
  fi
}

/* kill.lua [REL-2] [DEAD-1] */
inline kill_lua(e, j) {
  if
  :: private[e] != 0 ->
     printf("kill.lua: process %d moves entry %d to the dead set\n", OWNER(e), FIELD(e));
     own_outcome = (private[e] == j + 1 && ended[j]);
     assert(own_outcome);
     close_entry(e);
     dead[j]++;
     private[e] = 0
  :: else -> printf("kill.lua: process %d has no entry %d; nothing changes\n", OWNER(e), FIELD(e))
  fi
}

/* requeue.lua [REL-2] [ITER-4] */
inline requeue_lua(e, j) {
  if
  :: private[e] != 0 ->
     printf("requeue.lua: process %d moves entry %d to its queue, with a new payload\n", OWNER(e), FIELD(e));
     own_outcome = (private[e] == j + 1 && ended[j]);
     assert(own_outcome);
     close_entry(e);
     queue[j]++;
     ran[j] = 0; ended[j] = 0;
     private[e] = 0
  :: else -> printf("requeue.lua: process %d has no entry %d; nothing changes\n", OWNER(e), FIELD(e))
  fi
}

/* put_back.lua [REL-2] [SIG-5], for one entry */
inline put_back_lua(e) {
  if
  :: private[e] != 0 ->
     printf("put_back.lua: process %d returns entry %d to its queue\n", OWNER(e), FIELD(e));
     close_entry(e);
     queue[private[e] - 1]++;
#ifndef PUT_BACK_WITHOUT_DELETE
     private[e] = 0;
#endif
     check_places()
  :: else -> printf("put_back.lua: process %d has no entry %d; nothing changes\n", OWNER(e), FIELD(e))
  fi
}

/* recover.lua [REL-3] [REL-4]: the entries `list` of process p, as its caller saw them. */
inline recover_lua(p, list) {
  if
#ifdef RECOVERY_WITHOUT_LEASE_CHECK
  :: true ->
#else
  :: !lease[p] ->
#endif
     for (r_ : 0 .. ENTRIES - 1) {
       if
       :: IN(list, r_) && private[r_] != 0 ->
          if
          :: !lease[p] && lapsed[r_] -> excuse[private[r_] - 1]++
          :: else
          fi;
          printf("recover.lua: entry %d of process %d returns to its queue\n", FIELD(r_), p);
          close_entry(r_);
          queue[private[r_] - 1]++;
          private[r_] = 0
       :: else
       fi
     }
     r_ = 0;
#ifdef RECOVERY_FORGETS_OWNER
     owners[p] = 0;
#else
     if
     :: HLEN_IS_0(p) -> owners[p] = 0
     :: else
     fi;
#endif
     check_places()
  :: else
  fi
}
/* promote.lua [SCHED-5]: ZREM of the member, and only then LPUSH. */
inline promote_lua(j) {
  if
#ifdef PROMOTION_WITHOUT_REMOVAL_CHECK
  :: true ->
     if
     :: retry[j] > 0 -> retry[j]--
     :: else
     fi;
#else
  :: retry[j] > 0 ->
     retry[j]--;
#endif
     printf("promote.lua: job %d moves to its queue\n", j);
#ifdef PROMOTION_REMOVES_FIRST
     check_places();
#endif
     queue[j]++;
     check_places()
  :: else
  fi
}

/* kill_due.lua [SCHED-9]: the same for a member that is not a payload. */
inline kill_due_lua(j) {
  if
  :: retry[j] > 0 ->
     printf("kill_due.lua: job %d moves to the dead set\n", j);
     retry[j]--; dead[j]++; check_places()
  :: else
  fi
}

#define DONE    1
#define RETRY   2
#define KILL    3
#define REQUEUE 4

/* One outcome of a job, by the script of its type. */
inline outcome_lua(kind, e, j) {
  if
  :: kind == DONE    -> done_lua(e, j)
  :: kind == RETRY   -> retry_lua(e, j)
  :: kind == KILL    -> kill_lua(e, j)
  :: kind == REQUEUE -> requeue_lua(e, j)
  fi;
  check_places()
}
