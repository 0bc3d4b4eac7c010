/* faults.pml: faults of processes, messages and the server. All kinds share one budget, so every
 * combination of `FAULTS` of them is tried, each at every point.
 */

/* One other process stays up, so that there is one to recover. */
#if PROCESSES == 2
#define ONE_STAYS(p) (mode[1 - p] == UP)
#else
#define ONE_STAYS(p) ((mode[0] == UP && p != 0) || (mode[1] == UP && p != 1) || (mode[2] == UP && p != 2))
#endif

/* Faults of process p, and the end of its lease. */
proctype Fate(byte p) {
end:
  do
  /* Signal 9 */
  :: d_step { mode[p] != DOWN && FAULT && ONE_STAYS(p) ->
       printf("process %d crashes\n", p);
       spend_fault(); end_process(p) }
#ifdef STOPS
  /* Signal TERM */
  :: d_step { mode[p] == UP && FAULT && ONE_STAYS(p) ->
       printf("process %d is told to stop\n", p);
       spend_fault(); mode[p] = QUIET }
#endif
  /* The process is gone. Its lease ends by time, or by proof that it is gone. [REL-27] */
  :: d_step { mode[p] == DOWN && lease[p] ->
       printf("the lease of process %d ends\n", p);
       lease[p] = 0 }
  /* The process lives and does not beat for as long as its lease. */
  :: d_step { mode[p] != DOWN && lease[p] && FAULT ->
       printf("process %d is silent for longer than its lease\n", p);
       spend_fault();
       lease[p] = 0;
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) { lapsed[t_] = (private[t_] != 0) }
       t_ = 0 }
  od
}

/* The server carries out the late message. */
inline late_begins() {
  printf("the server receives the late %e of process %d\n", late, late_process)
}
inline late_ends() {
  u_ = 0;
  late = 0; late_entries = 0; late_process = 0; late_job = 0
}
inline late_fetch(j) {
  late_begins();
  for (u_ : 0 .. ENTRIES - 1) {
    if
    :: IN(late_entries, u_) -> fetch_lua(u_, j)
    :: else
    fi
  }
  late_ends()
}
proctype Network() {
end:
  do
  :: d_step { late == FETCH && queue[0] > 0 && lease[late_process] -> late_fetch(0) }
#if JOBS > 1
  :: d_step { late == FETCH && queue[1] > 0 && lease[late_process] -> late_fetch(1) }
#endif
  /* It takes nothing, or the server never receives it. */
  :: d_step { late == FETCH -> late_ends() }
  :: d_step { late == PUT_BACK ->
       late_begins();
       for (u_ : 0 .. ENTRIES - 1) {
         if
         :: IN(late_entries, u_) -> put_back_lua(u_)
         :: else
         fi
       }
       late_ends() }
  :: d_step { late == DONE || late == RETRY || late == KILL || late == REQUEUE ->
       late_begins();
       for (u_ : 0 .. ENTRIES - 1) {
         if
         :: IN(late_entries, u_) -> outcome_lua(late, u_, late_job)
         :: else
         fi
       }
       late_ends() }
  :: d_step { late == BEAT -> late_begins(); lease[late_process] = 1; owners[late_process] = 1; late_ends() }
  :: d_step { late == RECOVER -> late_begins(); recover_lua(late_process, late_entries); late_ends() }
  :: d_step { late == PROMOTE -> late_begins(); promote_lua(late_job); late_ends() }
  od
}

#ifdef RESTORE
/* Every job may run once more: the server forgot what it knew about the last run. */
inline restore(with_leases) {
  printf("the server forgets everything since its snapshot (leases are kept: %d)\n", with_leases);
  for (t_ : 0 .. JOBS - 1) {
    queue[t_] = old_queue[t_]; retry[t_] = old_retry[t_];
    dead[t_] = old_dead[t_]; finished[t_] = old_finished[t_];
    excuse[t_]++;
    ended[t_] = 1
  }
  for (t_ : 0 .. ENTRIES - 1) {
    private[t_] = old_private[t_];
    closed[t_] = (private[t_] == 0)
  }
  for (t_ : 0 .. PROCESSES - 1) {
    lease[t_] = old_lease[t_] && with_leases;
    owners[t_] = old_owners[t_]
  }
  t_ = 0;
  faults--;
  forget_snapshot();
  check_places()
}

/* A restart from a snapshot, or the promotion of a replica that lags. */
proctype Server() {
end_runs:
  d_step {
    faults > 0 ->
    printf("the server writes a snapshot\n");
    for (t_ : 0 .. JOBS - 1) {
      old_queue[t_] = queue[t_]; old_retry[t_] = retry[t_];
      old_dead[t_] = dead[t_]; old_finished[t_] = finished[t_]
    }
    for (t_ : 0 .. ENTRIES - 1) { old_private[t_] = private[t_] }
    for (t_ : 0 .. PROCESSES - 1) {
      old_lease[t_] = lease[t_]; old_owners[t_] = owners[t_]
    }
    t_ = 0
  }
end_has_snapshot:
  if
  :: d_step { FAULT -> restore(1) }
  :: d_step { FAULT -> restore(0) }
  fi
}
#endif
