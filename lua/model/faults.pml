/* faults.pml: what happens to processes, messages and the server. Each fault uses up one of
 * `faults`, so that every combination of so many faults is tried at every point. */

/* The other process still works, so that there is one to recover. */
#if PROCESSES == 2
#define ONE_STAYS(p) (mode[1 - p] == UP)
#else
#define ONE_STAYS(p) ((mode[0] == UP && p != 0) || (mode[1] == UP && p != 1) || (mode[2] == UP && p != 2))
#endif

/* What happens to the process and the lease of p. */
proctype Fate(byte p) {
end:
  do
  /* Signal 9, the OOM killer, a power cut. */
  :: d_step { mode[p] != DOWN && FAULT && ONE_STAYS(p) ->
       printf("process %d crashes\n", p);
       spend_fault(); end_process(p) }
#ifdef STOPS
  /* Signal TERM. */
  :: d_step { mode[p] == UP && FAULT && ONE_STAYS(p) ->
       printf("process %d is told to stop\n", p);
       spend_fault(); mode[p] = QUIET }
#endif
  /* The lease of a process that is gone ends, by time or by proof of its end. [REL-11] */
  :: d_step { mode[p] == DOWN && lease[p] ->
       printf("the lease of process %d ends\n", p);
       lease[p] = 0 }
  /* A living process does not beat for longer than its lease. */
  :: d_step { mode[p] != DOWN && lease[p] && FAULT ->
       printf("process %d is silent for longer than its lease\n", p);
       spend_fault();
       lease[p] = 0;
       for (t_ : p * FIELDS .. p * FIELDS + FIELDS - 1) {
         if
         :: private[t_] != 0 -> lapsed[t_] = 1
         :: else
         fi
       }
       t_ = 0 }
  od
}

/* The server carries out the message that is late. */
inline late_done() {
  printf("... which was the late message of type %d of process %d\n", late, late_owner);
  late = 0; late_entries = 0; late_owner = 0; late_job = 0
}
proctype Network() {
end:
  do
  :: d_step { late == FETCH && (!lease[late_owner] || queue[0] == 0) -> late_done() }
  :: d_step { late == FETCH && lease[late_owner] && queue[0] > 0 ->
       for (u_ : 0 .. ENTRIES - 1) {
         if
         :: IN(late_entries, u_) -> fetch_lua(u_, 0)
         :: else
         fi
       }
       u_ = 0; late_done() }
#if JOBS > 1
  :: d_step { late == FETCH && lease[late_owner] && queue[1] > 0 ->
       for (u_ : 0 .. ENTRIES - 1) {
         if
         :: IN(late_entries, u_) -> fetch_lua(u_, 1)
         :: else
         fi
       }
       u_ = 0; late_done() }
#endif
  :: d_step { late >= DONE && late <= REQUEUE ->
       for (u_ : 0 .. ENTRIES - 1) {
         if
         :: IN(late_entries, u_) -> outcome_lua(late, u_, late_job)
         :: else
         fi
       }
       u_ = 0; late_done() }
  :: d_step { late == PUT_BACK ->
       for (u_ : 0 .. ENTRIES - 1) {
         if
         :: IN(late_entries, u_) -> put_back_lua(u_)
         :: else
         fi
       }
       u_ = 0; late_done() }
  :: d_step { late == BEAT -> lease[late_owner] = 1; owners[late_owner] = 1; late_done() }
  :: d_step { late == RECOVER -> recover_lua(late_owner, late_entries); late_done() }
  :: d_step { late == PROMOTE -> promote_lua(late_job); late_done() }
  od
}

#ifdef RESTORE
/* The server forgets what it acknowledged since some moment: a restart from a snapshot, or the
 * promotion of a replica that lags. */
inline restore(keep_leases) {
  printf("the server restarts from its snapshot (with leases: %d)\n", keep_leases);
  for (t_ : 0 .. JOBS - 1) {
    queue[t_] = old_queue[t_];
    retry[t_] = old_retry[t_];
    dead[t_] = old_dead[t_];
    finished[t_] = old_finished[t_];
    excuse[t_]++;
    ended[t_] = 1
  }
  for (t_ : 0 .. ENTRIES - 1) {
    private[t_] = old_private[t_];
    closed[t_] = (private[t_] == 0)
  }
  for (t_ : 0 .. PROCESSES - 1) {
    lease[t_] = old_lease[t_] && keep_leases;
    owners[t_] = old_owners[t_]
  }
  faults--;
  forget_snapshot();
  check_places()
}

proctype Server() {
end_running:
  d_step {
    faults > 0 ->
    printf("the server writes a snapshot\n");
    for (t_ : 0 .. JOBS - 1) {
      old_queue[t_] = queue[t_];
      old_retry[t_] = retry[t_];
      old_dead[t_] = dead[t_];
      old_finished[t_] = finished[t_]
    }
    for (t_ : 0 .. ENTRIES - 1) { old_private[t_] = private[t_] }
    for (t_ : 0 .. PROCESSES - 1) {
      old_lease[t_] = lease[t_];
      old_owners[t_] = owners[t_]
    }
    t_ = 0
  }
end_saved:
  if
  :: d_step { FAULT -> restore(1) }
  :: d_step { FAULT -> restore(0) }
  fi
}
#endif
