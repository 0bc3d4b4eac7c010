/* redis.pml: the keys of the reliable profile, and the properties.
 *
 * A job is a number from 0. A private entry is a number as well: ENTRY(p, n) is the field with the
 * sequence number n in the private hash of process p.
 */
#define ENTRIES     (PROCESSES * FIELDS)
#define ENTRY(p, n) ((p) * FIELDS + (n))
#define OWNER(e)    ((e) / FIELDS)
#define FIELD(e)    ((e) % FIELDS)
#define IN(set, n)  (((set) >> (n)) & 1)

hidden byte i_, e_, places_;

byte queue[JOBS];       /* queue:<name>: how often it has the job; the order is left out */
byte retry[JOBS];       /* the sorted sets `retry` and `schedule`, which behave alike */
byte dead[JOBS];        /* the sorted set `dead` */
byte private[ENTRIES];  /* jobwire:private:<identity>: 0, or the number of the job plus 1 */
bit  lease[PROCESSES];  /* the identity hash exists */
bit  owners[PROCESSES]; /* jobwire:owners */
byte finished[JOBS];    /* no key: how often a job ended without being stored elsewhere */

#ifdef RESTORE
/* The same in the snapshot. */
byte old_queue[JOBS];
byte old_retry[JOBS];
byte old_dead[JOBS];
byte old_private[ENTRIES];
bit  old_lease[PROCESSES];
bit  old_owners[PROCESSES];
byte old_finished[JOBS];

inline forget_snapshot() {
  for (i_ : 0 .. JOBS - 1) {
    old_queue[i_] = 0; old_retry[i_] = 0; old_dead[i_] = 0; old_finished[i_] = 0
  }
  for (i_ : 0 .. ENTRIES - 1) { old_private[i_] = 0 }
  for (i_ : 0 .. PROCESSES - 1) { old_lease[i_] = 0; old_owners[i_] = 0 }
  i_ = 0
}
#endif

/* Records for the properties. They decide nothing. */
bit  ran[JOBS];         /* the job has run with its present payload */
bit  ended[JOBS];       /* such a run has ended */
byte excuse[JOBS];      /* how many second runs the events of section 20 explain */
bit  lapsed[ENTRIES];   /* the process lost its lease while it held this entry */
bit  closed[ENTRIES];   /* the entry is not there yet, or was removed */

/* The properties, each with the place where it is checked. */
hidden byte none_lost;     /* every step: each job is in at least one place */
hidden byte none_invented; /* every step: each job is in at most one place */
hidden byte owners_named;  /* every step: the owner of each private entry is in jobwire:owners */
hidden byte one_winner;    /* each removal: it is the first of this entry */
hidden byte own_outcome;   /* each outcome: the entry has the job of the outcome, and its run has ended */
hidden byte run_explained; /* each second run of a payload: an event of section 20 explains it */
hidden byte none_stuck;    /* the end of a history: every job is finished or dead */

#if FIELDS == 1
#define HLEN_IS_0(p)  (private[ENTRY(p, 0)] == 0)
#else
#define HLEN_IS_0(p)  (private[ENTRY(p, 0)] == 0 && private[ENTRY(p, 1)] == 0)
#endif
#if JOBS == 1
#define SETTLED       (finished[0] + dead[0] > 0)
#define ANY_DUE       (retry[0] > 0)
#else
#define SETTLED       (finished[0] + dead[0] > 0 && finished[1] + dead[1] > 0)
#define ANY_DUE       (retry[0] > 0 || retry[1] > 0)
#endif

/* The claim of section 19.1, after each step that changes a key. */
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
