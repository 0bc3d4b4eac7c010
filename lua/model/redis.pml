/* redis.pml: the keys of the reliable profile [SPEC.md, section 19], and the invariants.
 *
 * A job is a number. The model leaves out its bytes, its queue's name and its place in the queue.
 * A private entry is a number as well: `ENTRY(p, n)` is field n in the private hash of process p.
 */

#ifndef JOBS
#define JOBS 2
#endif
#ifndef FIELDS
#define FIELDS 2        /* private entries of a process at a time */
#endif
#ifndef PROCESSES
#define PROCESSES 2
#endif
#define ENTRIES   (PROCESSES * FIELDS)

#define ENTRY(p, n) ((p) * FIELDS + (n))
#define OWNER(e)    ((e) / FIELDS)
#define FIELD(e)    ((e) % FIELDS)
#define IN(mask, e) (((mask) >> (e)) & 1)

byte queue[JOBS];       /* queue:<name>: how often the list holds the job */
byte retry[JOBS];       /* the sorted set `retry`; `schedule` behaves alike */
byte dead[JOBS];        /* the sorted set `dead` */
byte private[ENTRIES];  /* jobwire:private:<identity>: 0, or the number of the job + 1 */
bit  lease[PROCESSES];  /* the identity hash, which expires */
bit  owners[PROCESSES]; /* jobwire:owners */
byte finished[JOBS];    /* not a key: how often `done.lua` removed the job */

#ifdef RESTORE
/* The same at the moment of the snapshot that the server restarts from. */
byte old_queue[JOBS];
byte old_retry[JOBS];
byte old_dead[JOBS];
byte old_finished[JOBS];
byte old_private[ENTRIES];
bit  old_lease[PROCESSES];
bit  old_owners[PROCESSES];
#endif

/* Records of the checker. No process and no script reads them. */
bit  ran[JOBS];         /* the job has run since its payload was last stored */
bit  ended[JOBS];       /* a run of it has ended since then */
byte excuse[JOBS];      /* how many more runs the events of section 20 explain */
bit  lapsed[ENTRIES];   /* the owner lost its lease while it held this entry */
bit  closed[ENTRIES];   /* an outcome, put back or recovery has removed this entry */

/* The properties. An assertion names the one that fails. */
hidden byte none_lost;     /* a job is in at least one place after every step */
hidden byte none_invented; /* a job is in at most one place after every step */
hidden byte owners_named;  /* the owner of a private entry is in jobwire:owners */
hidden byte one_winner;    /* one outcome, put back or recovery has an effect for each fetch */
hidden byte own_outcome;   /* an outcome ends the job that it belongs to, after a run has ended */
hidden byte run_explained; /* a second run has one of the causes that section 20 names */
hidden byte none_stuck;    /* when nothing is left to do, every job is finished or dead */

hidden byte i_, e_, places_;

#if FIELDS == 1
#define HLEN_IS_0(p)  (private[ENTRY(p, 0)] == 0)
#elif FIELDS == 2
#define HLEN_IS_0(p)  (private[ENTRY(p, 0)] == 0 && private[ENTRY(p, 1)] == 0)
#else
#define HLEN_IS_0(p)  (private[ENTRY(p, 0)] == 0 && private[ENTRY(p, 1)] == 0 && private[ENTRY(p, 2)] == 0)
#endif

#if JOBS == 1
#define SETTLED       (finished[0] + dead[0] > 0)
#define DUE           (retry[0] > 0)
#else
#define SETTLED       (finished[0] + dead[0] > 0 && finished[1] + dead[1] > 0)
#define DUE           (retry[0] > 0 || retry[1] > 0)
#endif

#ifdef RESTORE
inline forget_snapshot() {
  for (i_ : 0 .. JOBS - 1) {
    old_queue[i_] = 0; old_retry[i_] = 0; old_dead[i_] = 0; old_finished[i_] = 0
  }
  for (i_ : 0 .. ENTRIES - 1) { old_private[i_] = 0 }
  for (i_ : 0 .. PROCESSES - 1) { old_lease[i_] = 0; old_owners[i_] = 0 }
  i_ = 0
}
#endif

/* Called at the end of every step that changes a key: the claim of section 19.1. */
inline check_places() {
  for (i_ : 0 .. JOBS - 1) {
    places_ = queue[i_] + retry[i_] + dead[i_] + finished[i_];
    for (e_ : 0 .. ENTRIES - 1) {
      if
      :: private[e_] == i_ + 1 -> places_++
      :: else
      fi
    }
    none_lost = places_ >= 1;
    assert(none_lost);
    none_invented = places_ <= 1;
    assert(none_invented)
  }
  for (i_ : 0 .. PROCESSES - 1) {
    owners_named = owners[i_] || HLEN_IS_0(i_);
    assert(owners_named)
  }
  i_ = 0; e_ = 0; places_ = 0
}
