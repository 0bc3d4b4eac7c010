"""Products that write into the same Redis: the signs by which they are known, and their fate here.

Every fact is a row of a table. `detect` compares what is in a Redis with these rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from jobwire.protocol.foreign import DELAYED_CLASSES, POLICIES

__all__ = [
    "CLASSES",
    "FIELDS",
    "FIXED_KEYS",
    "FORMS",
    "KEYS",
    "PRODUCTS",
    "TREATMENTS",
    "Fate",
    "Product",
    "Sign",
    "Treatment",
    "Version",
    "version",
]

Version: TypeAlias = tuple[int, ...]

Fate = Literal["run", "translate", "park", "fail", "hand_over", "ignore"]
"""`run`: the jobs run, and the feature has no effect. `translate`: they run, decoded first. `park`:
they are set aside. `fail`: they fail. `ignore`: neither read nor changed."""

Product = Literal[
    "jobwire",
    "sidekiq",
    "sidekiq-pro",
    "sidekiq-enterprise",
    "sidekiq-batch",
    "sidekiq-cron",
    "sidekiq-scheduler",
    "sidekiq-unique-jobs",
    "sidekiq-status",
    "sidekiq-throttled",
    "sidekiq-limit_fetch",
    "sidekiq-failures",
    "active-job",
    "gitlab",
    "resque",
    "other-client",
    "other-worker",
    "other-layer",
    "other-program",
    "tracing",
]

PRODUCTS: Mapping[Product, str] = {
    "jobwire": "jobwire",
    "sidekiq": "Sidekiq",
    "sidekiq-pro": "Sidekiq Pro",
    "sidekiq-enterprise": "Sidekiq Enterprise",
    "sidekiq-batch": "sidekiq-batch",
    "sidekiq-cron": "sidekiq-cron",
    "sidekiq-scheduler": "sidekiq-scheduler",
    "sidekiq-unique-jobs": "sidekiq-unique-jobs",
    "sidekiq-status": "sidekiq-status",
    "sidekiq-throttled": "sidekiq-throttled",
    "sidekiq-limit_fetch": "sidekiq-limit_fetch",
    "sidekiq-failures": "sidekiq-failures",
    "active-job": "Active Job of Rails",
    "gitlab": "GitLab",
    "resque": "Resque",
    "other-client": "another client",
    "other-worker": "another worker",
    "other-layer": "another add-on of Sidekiq",
    "other-program": "another queue",
    "tracing": "a tracing library",
}


def version(text: str) -> Version:
    """Return the version that a text such as `7.3.2` begins with; empty if it has none."""
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


class Sign(NamedTuple):
    """One thing by which a product is known.

    Attributes:
        code: Its name.
        product: The product that writes it.
        text: The key, the field or the form, for people.
        since: The first version of the product that writes it; empty if that is not known.
        before: The first version that does not; empty if all later ones do.
        shared: True if jobwire writes it also, so that it proves nothing next to jobwire.
    """

    code: str
    product: Product
    text: str
    since: str = ""
    before: str = ""
    shared: bool = False


FIXED_KEYS: Mapping[str, tuple[str, Sign]] = {
    "processes": ("set", Sign("processes", "sidekiq", "set processes", shared=True)),
    "stat:processed": ("string", Sign("stat", "sidekiq", "counter stat:processed", shared=True)),
    "process_cleanup": (
        "string",
        Sign("process-cleanup", "sidekiq", "key process_cleanup", "6.5.2", shared=True),
    ),
    "profiles": ("zset", Sign("profiles", "sidekiq", "set profiles", "8.0.0")),
    "paused": ("set", Sign("paused", "sidekiq-pro", "set paused")),
    "batches": ("zset", Sign("batches", "sidekiq-pro", "set batches")),
    "super_processes": ("set", Sign("super-fetch", "sidekiq-pro", "set super_processes")),
    "dear-leader": ("string", Sign("leader", "sidekiq-enterprise", "key dear-leader")),
    "cron_jobs": (
        "set",
        Sign("cron-1", "sidekiq-cron", "set cron_jobs", before="2.0", shared=True),
    ),
    "cron_jobs:default": (
        "set",
        Sign("cron-2", "sidekiq-cron", "set cron_jobs:NAMESPACE", "2.0", shared=True),
    ),
    "schedules": ("hash", Sign("schedules", "sidekiq-scheduler", "hash schedules")),
    "schedules_changed": (
        "zset",
        Sign("schedules-changed", "sidekiq-scheduler", "set schedules_changed"),
    ),
    "uniquejobs:digests": (
        "zset",
        Sign("unique-digests", "sidekiq-unique-jobs", "set uniquejobs:digests", "7"),
    ),
    "limit:processes": (
        "set",
        Sign("limit-processes", "sidekiq-limit_fetch", "set limit:processes"),
    ),
    "failed": ("zset", Sign("failures", "sidekiq-failures", "set failed")),
    "interrupted": ("zset", Sign("interrupted", "gitlab", "set interrupted")),
    "sidekiq-pauzer": ("set", Sign("pauzer", "other-layer", "set sidekiq-pauzer")),
    "sidekiq-alive-hostnames": (
        "zset",
        Sign("alive", "other-layer", "set sidekiq-alive-hostnames"),
    ),
    "debouncer": ("zset", Sign("debouncer", "other-layer", "set debouncer")),
}
"""Keys whose name never changes: name to type and sign."""

KEYS: tuple[tuple[str, Sign], ...] = (
    (r"jobwire:.+", Sign("jobwire-key", "jobwire", "keys jobwire:*")),
    (
        r"uniquejobs:metrics\|.+",
        Sign("unique-metrics", "sidekiq-unique-jobs", "keys uniquejobs:metrics|*", "9"),
    ),
    (
        r"uniquejobs:[0-9a-f]{32,}:(LOCKED|QUEUED|PRIMED)(:.*)?",
        Sign("unique-lock", "sidekiq-unique-jobs", "keys uniquejobs:DIGEST:LOCKED", "7"),
    ),
    (r"uniquejobs:.+", Sign("unique-key", "sidekiq-unique-jobs", "keys uniquejobs:*")),
    (
        r"cron_jobs:.+",
        Sign("cron-2", "sidekiq-cron", "set cron_jobs:NAMESPACE", "2.0", shared=True),
    ),
    (r"sidekiq-scheduler:.+", Sign("scheduler", "sidekiq-scheduler", "keys sidekiq-scheduler:*")),
    (r"sidekiq:status:.+", Sign("status", "sidekiq-status", "hashes sidekiq:status:*")),
    (
        r"throttled:.+:(concurrency\.v2|threshold)(:.*)?",
        Sign("throttled", "sidekiq-throttled", "keys throttled:*"),
    ),
    (r"(BID|invalidated-bid)-.+", Sign("batch-key", "sidekiq-batch", "keys BID-*")),
    (
        r"b-([\w-]{14}|[0-9a-f]{16})(-(jids|failed|failinfo|died|notify|complete|pending|cbsucc))?",
        Sign("pro-batch", "sidekiq-pro", "keys b-*"),
    ),
    (r"queue:sq\|.+", Sign("super-fetch-list", "sidekiq-pro", "lists queue:sq|*")),
    (
        r"unique:([0-9a-f]{40}|[\w+/-]{43}=?)",
        Sign("unique-ent", "sidekiq-enterprise", "keys unique:*"),
    ),
    (r"lmtr-.+", Sign("limiter", "sidekiq-enterprise", "keys lmtr-*")),
    (r"limit_fetch:.+", Sign("limit-fetch", "sidekiq-limit_fetch", "keys limit_fetch:*")),
    (r"limit:heartbeat:.+", Sign("limit-beat", "sidekiq-limit_fetch", "keys limit:heartbeat:*")),
    (
        r"resque:gitlab:.*duplicate:.+",
        Sign("gitlab-cookie", "gitlab", "keys resque:gitlab:*duplicate:*"),
    ),
    (r"resque:gitlab:.+", Sign("gitlab-namespace", "gitlab", "keys resque:gitlab:*")),
    (
        r"gitlab-sidekiq-status:.+|gitlab:(exclusive_lease|job_waiter):.+"
        r"|sidekiq:(concurrency_limit|throttling|pause_control|cancel):.+",
        Sign("gitlab-key", "gitlab", "keys of GitLab's layer"),
    ),
    (
        r"working:queue:.+|reliable-fetcher-.+",
        Sign("gitlab-fetcher", "gitlab", "keys of GitLab's reliable fetch"),
    ),
    (r"resque:.+", Sign("resque-key", "resque", "keys resque:*")),
    (
        r"queue:backup(::|\|).+|queue:.+:inprogress",
        Sign("private-list", "other-worker", "lists of running jobs of another worker"),
    ),
    (
        r"activejob_uniqueness:.+|batching:.+|debounce/v3/.+|inproc:.+|ultimate:.+"
        r"|sidekiq:statistic.*|SIDEKIQ::LIVENESS_PROBE_TIMESTAMP::.+|queue:sidekiq-alive-.+",
        Sign("layer-key", "other-layer", "keys of a smaller add-on"),
    ),
    (
        r"(rq|bull|dramatiq|arq):.+|_kombu\..+|celery-task-meta-.+",
        Sign("program-key", "other-program", "keys of RQ, BullMQ, Dramatiq, ARQ or Celery"),
    ),
    # Of Sidekiq itself.
    (
        r"j\|\d{8}(\|\d+)?",
        Sign("metrics-beta", "sidekiq", "hashes j|YYYYMMDD", "6.5.2", "7.0"),
    ),
    (
        r"j\|\d{8}\|\d+:\d+",
        Sign("metrics-7", "sidekiq", "hashes j|YYYYMMDD|H:M", "6.5.2", "8.0", shared=True),
    ),
    (
        r"j\|\d{6}\|\d+:\d+",
        Sign("metrics-8", "sidekiq", "hashes j|YYMMDD|H:M", "8.0", shared=True),
    ),
    (
        r"h\|.+-\d+-\d+:\d+",
        Sign("histogram-8", "sidekiq", "keys h|CLASS-D-H:M", "8.0", shared=True),
    ),
    (
        r"(::)?[A-Z].*-\d\d-\d{1,2}:\d{1,2}",
        Sign("histogram-7", "sidekiq", "keys CLASS-DD-H:M", "6.5.2", "8.0", shared=True),
    ),
    (r"\d{8}-marks", Sign("marks", "sidekiq", "hashes YYYYMMDD-marks", "6.5.2", shared=True)),
    (r"deploylock-.+", Sign("deploylock", "sidekiq", "keys deploylock-*", "7.0", shared=True)),
    (r"it-[0-9a-f]{24}", Sign("iteration", "sidekiq", "hashes it-JID", "7.3", shared=True)),
    (
        r".+:\d+:[0-9a-f]{12}:workers",
        Sign("work-old", "sidekiq", "hashes IDENTITY:workers", before="6.4.2"),
    ),
    (
        r".+:\d+:[0-9a-f]{12}:work",
        Sign("work", "sidekiq", "hashes IDENTITY:work", "6.4.2", shared=True),
    ),
)
"""Patterns of key names; the first one that fits counts."""

FIELDS: tuple[tuple[str, Sign], ...] = (
    (r"jw_.+", Sign("jw-field", "jobwire", "fields jw_*")),
    (r"lock_digest", Sign("lock-digest", "sidekiq-unique-jobs", "field lock_digest", "7")),
    (
        r"unique_digest",
        Sign("unique-digest", "sidekiq-unique-jobs", "field unique_digest", before="7"),
    ),
    (r"bid", Sign("bid", "sidekiq-pro", "field bid")),
    (r"expires_in", Sign("expires-in", "sidekiq-pro", "field expires_in")),
    (r"encrypt", Sign("encrypt", "sidekiq-enterprise", "field encrypt")),
    (r"unique_for|unique_until", Sign("unique-for", "sidekiq-enterprise", "field unique_for")),
    (r"overrated", Sign("overrated", "sidekiq-enterprise", "field overrated")),
    (
        r"compressed|size_limiter|original_job_size_bytes",
        Sign("compressed", "gitlab", "fields of GitLab's size limiter"),
    ),
    (
        r"meta\.[a-z_]+|wal_locations|worker_data_consistency|duplicate-of|status_expiration"
        r"|concurrency_limit_resume|interrupted_count",
        Sign("gitlab-field", "gitlab", "fields of GitLab's layer"),
    ),
    (
        r"encrypted_args|debounce_key",
        Sign("layer-field", "other-layer", "fields of a smaller add-on"),
    ),
    (
        r"traceparent|x-datadog-trace-id|trace_propagation_headers|newrelic|uber-trace-id",
        Sign("trace", "tracing", "fields with a trace"),
    ),
)
"""Patterns of the names of payload fields that are neither null nor false."""

CLASSES: Mapping[str, Sign] = {
    "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper": Sign(
        "wrapper-old", "active-job", "class ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
    ),
    "Sidekiq::ActiveJob::Wrapper": Sign(
        "wrapper-new", "active-job", "class Sidekiq::ActiveJob::Wrapper"
    ),
    "Sidekiq::Batch::Callback::Worker": Sign(
        "batch-callback", "sidekiq-batch", "class Sidekiq::Batch::Callback::Worker"
    ),
    **dict.fromkeys(
        DELAYED_CLASSES,
        Sign("delayed", "sidekiq", "classes of the delayed extensions", before="7.0"),
    ),
}
"""Wire classes that belong to a product."""

FORMS: Mapping[str, Sign] = {
    "seconds": Sign("seconds", "sidekiq", "times in float seconds", before="8.0", shared=True),
    "milliseconds": Sign(
        "milliseconds", "sidekiq", "times in integer milliseconds", "8.0", shared=True
    ),
    "whole-seconds": Sign("whole-seconds", "other-client", "times in whole seconds"),
    "text-times": Sign("text-times", "other-client", "times as text"),
    "no-created-at": Sign("no-created-at", "other-client", "payloads without created_at"),
    "no-jid": Sign("no-jid", "other-client", "payloads without jid"),
    "class-first": Sign(
        "class-first", "sidekiq", "payloads that begin with class and args", before="6.0.4"
    ),
    "backtrace-array": Sign(
        "backtrace-array", "sidekiq", "error_backtrace as an array", before="6.0.1"
    ),
    "backtrace-lines": Sign(
        "backtrace-lines", "sidekiq", "error_backtrace with line breaks", "6.0.1", "7.2.1"
    ),
    "backtrace-line": Sign(
        "backtrace-line", "sidekiq", "error_backtrace in one line", "7.2.1", shared=True
    ),
    "cattr-object": Sign("cattr-object", "sidekiq", "cattr as an object", "6.3.1"),
    "cattr-array": Sign("cattr-array", "sidekiq", "cattr as an array", "8.0"),
    "idempotency-key": Sign("idempotency-key", "gitlab", "field idempotency_key"),
    "retry-for": Sign("retry-for", "sidekiq", "field retry_for", shared=True),
    "wrapper-new": Sign(
        "wrapper-new-form",
        "sidekiq",
        "class Sidekiq::ActiveJob::Wrapper",
        "7.3.3",
        shared=True,
    ),
    # Of the heartbeat of a process that does not report its version.
    "beat-5": Sign("beat-5", "sidekiq", "a process without rss", before="6.1.3"),
    "beat-6": Sign("beat-6", "sidekiq", "a process without version", "6.1.3", "7.0.2"),
    "namespace": Sign("namespace", "sidekiq", "all keys under a prefix", before="7.0"),
}
"""Forms of values, which code recognizes."""


class Treatment(NamedTuple):
    """The fate of the jobs of a product in a worker of jobwire.

    Attributes:
        fate: Fate of the jobs.
        effect: The consequence.
        setting: The setting that changes it, or a remedy; empty if there is none.
    """

    fate: Fate
    effect: str
    setting: str = ""


_OWN_QUEUES = "let Ruby serve the queues of these classes"
_ANY = "jobs of classes that only Ruby has fail and are retried"

TREATMENTS: Mapping[str, Treatment] = {
    "sidekiq": Treatment("run", _ANY, "unknown_jobs=park, or queues of their own"),
    "delayed": Treatment(POLICIES["delayed"], "they are YAML of Ruby", "foreign delayed=fail"),
    "bid": Treatment(POLICIES["bid"], "nothing here counts the jobs of a batch", "foreign bid=run"),
    "expires-in": Treatment(
        POLICIES["expires_in"], "they may come too late", "foreign expires_in=run"
    ),
    "encrypt": Treatment(
        POLICIES["encrypt"],
        "they fail, unless middleware decrypts their last argument",
        "foreign encrypt=park",
    ),
    "unique-for": Treatment(
        POLICIES["unique_for"], "their lock stays until it expires", "foreign unique_for=park"
    ),
    "overrated": Treatment(
        POLICIES["overrated"], "rate limits are not observed", "foreign overrated=park"
    ),
    "limiter": Treatment("run", "rate limits are not observed", _OWN_QUEUES),
    "paused": Treatment(
        "ignore",
        "workers of jobwire fetch from queues that this set pauses",
        "pause them with 'jobwire inspect pause' also",
    ),
    "super-fetch": Treatment("ignore", "only Pro returns jobs from its private lists"),
    "batch-key": Treatment(
        POLICIES["bid"], "nothing here counts the jobs of a batch", "foreign bid=run"
    ),
    "sidekiq-cron": Treatment(
        "translate", "workers share its entries and its ticks", "periodic=false"
    ),
    "sidekiq-scheduler": Treatment(
        "run", "Ruby enqueues its jobs; they run if their class is known"
    ),
    "sidekiq-unique-jobs": Treatment(
        "run", "locks are kept and released; a job with a conflict is put off"
    ),
    "sidekiq-status": Treatment(
        "run",
        "their status stays queued until it expires, unless app.sidekiq_status() names them",
        _OWN_QUEUES,
    ),
    "sidekiq-throttled": Treatment("run", "they do not count for its limits", _OWN_QUEUES),
    "sidekiq-limit_fetch": Treatment(
        "run", "limits and pauses of its queues are not observed", _OWN_QUEUES
    ),
    "sidekiq-failures": Treatment("ignore", "its page does not show failures in Python"),
    "active-job": Treatment(
        "translate",
        "@app.active_job(NAME) runs them; others fail as jobs of unknown classes",
        "unknown_jobs=park",
    ),
    "compressed": Treatment("translate", "arguments are inflated for the job"),
    "idempotency-key": Treatment(
        "run",
        "the cookie is deleted before the job runs, as GitLab does",
        _OWN_QUEUES,
    ),
    "gitlab": Treatment(
        "run", "cookies, status and cancels are honoured; limits are not observed", _OWN_QUEUES
    ),
    "resque": Treatment("ignore", "its keys and jobs are not those of Sidekiq"),
    "other-client": Treatment("run", "missing fields have their defaults"),
    "other-worker": Treatment("ignore", "its lists of running jobs are not read"),
    "other-layer": Treatment("run", "the fields are kept, and the add-on does not see the job"),
    "other-program": Treatment("ignore", "its keys and jobs are not those of Sidekiq"),
    "tracing": Treatment("run", "the fields are kept; jobwire.otel and jobwire.sentry read them"),
    "namespace": Treatment(
        "ignore", "keys under another prefix are not read", "--namespace PREFIX:"
    ),
}
"""By the code of a sign, or else by product."""
