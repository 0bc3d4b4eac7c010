"""Every key name of the protocol. No other module builds a key, so no reserved one is ever written.

The keys of periodic entries belong to cron add-ons, and follow their form.
[KEY-0] [KEY-4] [KEY-5] [KEY-6] [KEY-9] [X-CRON-1]
"""

from __future__ import annotations

from dataclasses import dataclass, field

from jobwire.errors import ConfigError

__all__ = ["Keys"]


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of all keys under one namespace.

    Args:
        namespace: Prefix of every key. `""` gives Sidekiq's own key names. A prefix with a hash
            tag, like `{shard-03}:`, puts all keys into one slot of a Redis or Valkey Cluster.
    """

    namespace: str = ""

    queues: str = field(init=False)  # SET of bare queue names [KEY-1]
    schedule: str = field(init=False)  # ZSET payload -> due time [KEY-3] [KEY-8]
    retry: str = field(init=False)  # ZSET payload -> next attempt [KEY-3]
    dead: str = field(init=False)  # ZSET payload -> time of death [KEY-3]
    unreadable: str = field(init=False)  # ZSET JSON, not an object -> time found [EXEC-4]
    parked: str = field(init=False)  # ZSET payload -> time of parking [X-PARK-3]
    parked_why: str = field(init=False)  # HASH SHA-1 of the payload -> reason [X-PARK-5]
    processes: str = field(init=False)  # SET of process identities [BEAT-1]
    cleanup_lock: str = field(init=False)  # STRING held by the pruner of `processes` [BEAT-8]
    owners: str = field(init=False)  # SET of identities with private entries [REL-14]
    returned: str = field(init=False)  # HASH payload digest -> times put back [REL-7]
    returned_at: str = field(init=False)  # ZSET payload digest -> time of last return [REL-7]
    paused: str = field(init=False)  # SET of bare queue names not to fetch from [REL-9]
    pro_paused: str = field(init=False)  # SET of the same of Sidekiq Pro; only read [KEY-6]
    recovery: str = field(init=False)  # STRING held by the process that recovers for all [REL-17]
    recovered: str = field(init=False)  # STRING counter of recovered jobs [REL-12]
    expired: str = field(init=False)  # STRING counter of jobs that came too late [X-TIME-3]
    handed_over: str = field(init=False)  # STRING counter of jobs left to others [X-CLASS-7]
    lost: str = field(init=False)  # STRING counter of outcomes that came too late [REL-23]
    cancelled: str = field(init=False)  # ZSET jid -> time of the cancellation [X-CANCEL-1]
    ruby_digests: str = field(init=False)  # ZSET name of a lock -> time [X-ADDON-6]
    limits: str = field(init=False)  # ZSET limit as JSON -> its last use, ms [X-LIMIT-3]
    journal: str = field(init=False)  # STREAM of the changes that people made [KEY-5]
    shards: str = field(init=False)  # HASH shard -> its state [KEY-5]

    def __post_init__(self) -> None:
        if any(char.isspace() for char in self.namespace):
            raise ConfigError(
                f"namespace: {self.namespace!r} holds white space; use a prefix like 'app:'"
            )
        for name, key in (
            ("queues", "queues"),
            ("schedule", "schedule"),
            ("retry", "retry"),
            ("dead", "dead"),
            ("unreadable", "jobwire:unreadable"),
            ("parked", "jobwire:parked"),
            ("parked_why", "jobwire:parked:why"),
            ("processes", "processes"),
            ("cleanup_lock", "process_cleanup"),
            ("owners", "jobwire:owners"),
            ("returned", "jobwire:returned"),
            ("returned_at", "jobwire:returned_at"),
            ("paused", "jobwire:paused"),
            ("pro_paused", "paused"),
            ("recovery", "jobwire:recovery"),
            ("recovered", "jobwire:stat:recovered"),
            ("expired", "jobwire:stat:expired"),
            ("handed_over", "jobwire:stat:handed_over"),
            ("lost", "jobwire:stat:lost"),
            ("cancelled", "jobwire:cancelled"),
            ("ruby_digests", "uniquejobs:digests"),
            ("limits", "jobwire:limits"),
            ("journal", "jobwire:journal"),
            ("shards", "jobwire:shards"),
        ):
            object.__setattr__(self, name, self.namespace + key)

    @property
    def one_slot(self) -> bool:
        """True if a hash tag in the namespace puts all keys into one slot of a cluster. [KEY-4]

        The server's rule: the tag is the text between the first `{` and the next `}`, and an empty
        one is none.
        """
        return self.namespace.partition("{")[2].find("}") > 0

    def queue(self, name: str) -> str:
        """LIST of payloads; the one at the tail runs next. [KEY-2]"""
        return f"{self.namespace}queue:{name}"

    def process(self, identity: str) -> str:
        """HASH of a process's heartbeat; the TTL of the key is the lease. [BEAT-1] [REL-3]"""
        return self.namespace + identity

    def work(self, identity: str) -> str:
        """HASH of thread id -> work record. [BEAT-5]"""
        return f"{self.namespace}{identity}:work"

    def old_work(self, identity: str) -> str:
        """HASH of work records under the name that Sidekiq up to 6.4.1 reads. [BEAT-5]"""
        return f"{self.namespace}{identity}:workers"

    def signals(self, identity: str) -> str:
        """LIST of signal names that wait for a process. [SIG-4]"""
        return f"{self.namespace}{identity}-signals"

    def private(self, identity: str) -> str:
        """HASH of `sequence:queue` -> payload: the jobs that a process holds. [REL-6] [REL-13]"""
        return f"{self.namespace}jobwire:private:{identity}"

    def idle(self, group: str, part: str) -> str:
        """STRING of a guard of the idle processes of a group, or LIST of its rings. [REL-30]"""
        return f"{self.namespace}jobwire:idle:{group}:{part}"

    def classes(self, identity: str) -> str:
        """SET of the classes that a process can run. [X-CLASS-1]"""
        return f"{self.namespace}jobwire:classes:{identity}"

    def stat(self, kind: str, day: str | None = None) -> str:
        """STRING counter `processed` or `failed`: total, or of one UTC day. [STAT-1] [STAT-2]"""
        return f"{self.namespace}stat:{kind}" + (f":{day}" if day else "")

    def gitlab_cookie(self, key: str) -> str:
        """STRING that keeps out jobs which are equal to one that waits. [X-ADDON-11]"""
        return f"{self.namespace}resque:gitlab:{key}:cookie:v2"

    def gitlab_status(self, jid: str) -> str:
        """STRING that exists while a job has not succeeded. [X-ADDON-12]"""
        return f"{self.namespace}gitlab-sidekiq-status:{jid}"

    def gitlab_cancel(self, jid: str) -> str:
        """STRING that exists if a job must not run. [X-ADDON-13]"""
        return f"{self.namespace}sidekiq:cancel:{jid}"

    def ruby_status(self, jid: str) -> str:
        """HASH of the status of a job, as sidekiq-status keeps it. [X-ADDON-19]"""
        return f"{self.namespace}sidekiq:status:{jid}"

    def gitlab_waiter(self, name: str) -> str:
        """LIST of the ids of jobs that have ended, for one who waits for them. [X-ADDON-14]"""
        return self.namespace + name

    def iteration(self, jid: str) -> str:
        """HASH of the state of an iterable job. [ITER-1]"""
        return f"{self.namespace}it-{jid}"

    def result(self, jid: str) -> str:
        """STRING of the result of a job that keeps it. [X-RESULT-3]"""
        return f"{self.namespace}jobwire:result:{jid}"

    def steps(self, jid: str) -> str:
        """HASH of the finished steps of a job: name to value. [X-STEP-1]"""
        return f"{self.namespace}jobwire:steps:{jid}"

    def output(self, jid: str) -> str:
        """STREAM of the items that a job has emitted. [X-STEP-7]"""
        return f"{self.namespace}jobwire:out:{jid}"

    def progress(self, jid: str) -> str:
        """STRING of the progress that a job has reported. [X-PROG-1]"""
        return f"{self.namespace}jobwire:progress:{jid}"

    def unique(self, digest: str) -> str:
        """STRING of the id of the job that has the lock of a key. [X-UNIQ-3]

        A name with a colon is a lock of sidekiq-unique-jobs: a HASH. [X-ADDON-1]
        """
        if ":" in digest:
            return f"{self.namespace}{digest}:LOCKED"
        return f"{self.namespace}jobwire:unique:{digest}"

    def ruby_lock(self, name: str) -> tuple[str, str, str, str]:
        """STRINGs and LISTs next to a lock of sidekiq-unique-jobs. [X-ADDON-6]"""
        plain = self.namespace + name
        return plain, f"{plain}:INFO", f"{plain}:PRIMED", f"{plain}:QUEUED"

    def limit(self, ident: str, part: str) -> str:
        """ZSET, HASH or STRING of the slots, the line and the times of a limit. [X-LIMIT-3]"""
        return f"{self.namespace}jobwire:limit:{ident}:{part}"

    def batch(self, batch_id: str) -> str:
        """HASH of a batch: its state and its callbacks. [X-BATCH-1]"""
        return f"{self.namespace}jobwire:batch:{batch_id}"

    def batch_open(self, batch_id: str) -> str:
        """SET of the ids of the members of a batch that have not ended. [X-BATCH-2]"""
        return f"{self.namespace}jobwire:batch:{batch_id}:open"

    def batch_failed(self, batch_id: str) -> str:
        """SET of the ids of the members of a batch that ended without success. [X-BATCH-5]"""
        return f"{self.namespace}jobwire:batch:{batch_id}:failed"

    def task(self, jid: str) -> str:
        """HASH of the record of a task of Django that keeps its result. [KEY-5]"""
        return f"{self.namespace}jobwire:task:{jid}"

    def rollup(self, bucket: str) -> str:
        """HASH of executions by class in one time bucket, such as `250214|8:04`. [MET-1]"""
        return f"{self.namespace}j|{bucket}"

    def histogram(self, class_name: str, minute: str) -> str:
        """STRING of counters by duration, for one minute such as `14-8:4`. [MET-2]"""
        return f"{self.namespace}h|{class_name}-{minute}"

    def old_histogram(self, class_name: str, minute: str) -> str:
        """STRING of the same counters under the name that Sidekiq 7 reads. [MET-4]"""
        return f"{self.namespace}{class_name}-{minute}"

    def waits(self, bucket: str) -> str:
        """STRING of counters by waiting time, for one bucket such as `250214|8:04`. [KEY-5]"""
        return f"{self.namespace}jobwire:waits:{bucket}"

    def marks(self, day: str) -> str:
        """HASH of minute -> label: the deployments of a day such as `20250214`. [MET-5]"""
        return f"{self.namespace}{day}-marks"

    def deploy_lock(self, label: str) -> str:
        """STRING that holds the minute at which a deployment is marked. [MET-5]"""
        return f"{self.namespace}deploylock-{label}"

    def undo(self, record: str) -> str:
        """HASH of a deletion that can be undone: person, time and place. [KEY-5]"""
        return f"{self.namespace}jobwire:undo:{record}"

    def undo_part(self, record: str, part: int) -> str:
        """ZSET, LIST or HASH of the entries that one step of a deletion removed. [KEY-5]"""
        return f"{self.namespace}jobwire:undo:{record}:{part}"

    def undo_lock(self, record: str) -> str:
        """STRING held by the program that undoes a deletion. [KEY-5]"""
        return f"{self.namespace}jobwire:undo:{record}:lock"

    def cron_entries(self, namespace: str | None) -> str:
        """SET of the names of the hashes of periodic entries; None for layout 1. [X-CRON-1]"""
        return f"{self.namespace}cron_jobs" + ("" if namespace is None else f":{namespace}")

    def cron_member(self, namespace: str | None, name: str) -> str:
        """Member of that set: the name of the entry's hash, without `self.namespace`. [X-CRON-1]"""
        return f"cron_job:{name}" if namespace is None else f"cron_job:{namespace}:{name}"

    def cron_entry(self, member: str) -> str:
        """HASH of one periodic entry. [X-CRON-1]"""
        return self.namespace + member

    def cron_ticks(self, member: str) -> str:
        """ZSET of the ticks of an entry that were taken. [X-CRON-4]"""
        return f"{self.namespace}{member}:enqueued"

    def cron_history(self, member: str) -> str:
        """LIST of the newest pushes of an entry. [X-CRON-6]"""
        return f"{self.namespace}{member}:jid_history"
