"""Rules for payloads that are written to queues and sorted sets, or taken from queues."""

from __future__ import annotations

import math
from typing import Any

from jobwire_conformance.judge import payloads
from jobwire_conformance.judge.ledger import Finding
from jobwire_conformance.judge.payloads import Breach
from jobwire_conformance.judge.seen_payloads import Origin
from jobwire_conformance.judge.stream import JudgeContext, Step, Unit, canonical
from jobwire_conformance.wire.call import script_sha
from jobwire_conformance.wire.commands import keys_of, spec_of

__all__ = ["JobRules"]

_SETS = ("schedule", "retry", "dead")
_ZADD_OPTIONS = frozenset(b"NX XX GT LT CH INCR".split())
_FAILURE = frozenset(
    [
        "queue",
        "error_message",
        "error_class",
        "failed_at",
        "retry_count",
        "error_backtrace",
        "retried_at",
    ]
)
# Fields that promotion may add, including those of client middleware. [SCHED-6] [PAY-13]
_PROMOTED = frozenset(
    ["retry", "queue", "jid", "created_at", "enqueued_at", "cattr", "locale", "tags", "profile"]
)
_ORDER = ("retry", "queue", "jid", "created_at", "enqueued_at")
_OWN_TIMES = ("failed_at", "retried_at")  # of the worker
_POISON = "jobwire.PoisonPill"  # error class of a poison pill, which did not fail [REL-10]
_LEAST_IN_MILLISECONDS = 10**12  # the year 2001
_SLACK = 300.0  # seconds that a clock may differ
_GIVEN_S = 3600.0  # age of a `created_at` that the client has not made itself
_LINK = 2.0  # seconds between commands that belong together
_SIDEKIQ_POPS = (
    "f4a8a5467f9f4697a26fdfb839476b9ee52e897c",
    "000a4c2f82df69db1780053377a2c9b0741570e0",
)
_DOUBLE_EXACT = 2**53


class JobRules:
    """The rules for payloads in queues and sorted sets."""

    def __init__(self, context: JudgeContext) -> None:
        self._context = context
        self._ledger = context.ledger
        self._popped: dict[str, float] = {}
        self._generations: dict[object, int] = {}
        self._may_hand_over = False  # a worker has found a class that another one announced

    def look(self, unit: Unit) -> None:
        """Judge commands that were executed together."""
        context = self._context
        for step in unit.steps:
            if step.worked:
                self._register(step)
        for step in unit.steps:
            if not step.worked or len(step.words) < 2:
                continue
            key = context.key(step.words[1])
            match step.name:
                case "LPUSH" | "LPUSHX" | "RPUSH" | "RPUSHX":
                    self._push(step, unit, key)
                case "ZADD" if key in _SETS:
                    self._add(step, unit, key)
                case "ZINCRBY" if key in _SETS:
                    self._judge("INSP-8", False, step, "ZADD XX of the exact bytes", "ZINCRBY")
                case "ZREMRANGEBYSCORE" if key in ("schedule", "retry"):
                    seen = "removal by score"
                    self._judge("INSP-15", False, step, f"ZREM {key} <bytes>", seen)
                case "ZREM" | "LREM" if key in _SETS or key.startswith("queue:"):
                    self._ledger.exercise("INSP-15")
                    self._removed(step, unit, key)
                case "SISMEMBER" if key.startswith("jobwire:classes:"):
                    self._may_hand_over |= step.reply == 1
                case "DEL" | "UNLINK":
                    self._clear(step, unit)
        self._read(unit)

    # -- queues

    def _register(self, step: Step) -> None:
        context = self._context
        if step.name not in ("SADD", "SREM", "DEL", "UNLINK", "FLUSHDB", "FLUSHALL"):
            return
        if step.name.startswith("FLUSH"):
            context.registered.clear()
        elif len(step.words) > 1 and context.key(step.words[1]) == "queues":
            names = [word.decode("utf-8", "surrogateescape") for word in step.words[2:]]
            if step.name == "SADD":
                context.registered.update(names)
                for name in names:
                    context.promises.keep("queues", name)
            elif step.name == "SREM":
                context.registered.difference_update(names)
            else:
                context.registered.clear()

    def _push(self, step: Step, unit: Unit, key: str) -> None:
        if key.startswith("queues:"):
            self._judge("KEY-2", False, step, "the list queue:<name>", f"the list {key}")
            return
        if not key.startswith("queue:") or key.startswith("queue:sq|"):
            return
        name = key.removeprefix("queue:")
        self._judge("KEY-2", name, step, "queue: and the bare name", "no name")
        texts = step.words[2:]
        if step.name.startswith("R"):
            for text in texts:
                self._at_tail(step, text, key)
            return
        self._judge("BULK-1", len(texts) <= 1000, step, "at most 1,000 jobs", f"{len(texts)}")
        fresh: list[object] = [self._at_head(step, text, key) for text in texts]
        jids = [jid for jid in fresh if isinstance(jid, str)]
        self._distinct(step, jids)
        self._registration(step, unit, name, fresh=bool(jids))

    def _registration(self, step: Step, unit: Unit, name: str, *, fresh: bool) -> None:
        context = self._context
        here = any(
            other.name == "SADD" and context.key(other.words[1]) == "queues" for other in unit.steps
        )
        if fresh:
            expected = "SADD queues and LPUSH in one transaction or script"
            together = unit.atomic and here
            self._judge("PUSH-2", together, step, expected, "an LPUSH outside the transaction")
        if name in context.registered:
            self._ledger.exercise("KEY-1")
        else:
            expected, seen = f"SADD queues {name}", "a push to a queue that is not registered"
            context.expect("queues", name, _LINK, "KEY-1", step, expected, seen)

    def _at_tail(self, step: Step, text: bytes, key: str) -> None:
        seen_payloads = self._context.seen_payloads
        place = seen_payloads.place(text, step.record.sent)
        self._context.promises.keep("moved", str(hash(text)))
        if place is not None:
            same = place in (key, "") or place.startswith("jobwire:")
            self._judge("FETCH-6", same, step, f"put back into {place}", f"put back into {key}")
            return
        job, _ = payloads.parse(text)
        origin = seen_payloads.origin(job.get("jid") if job else None, step.record.sent)
        if origin is None:
            seen = "insertion at the tail"
            self._judge("PUSH-1", False, step, "LPUSH: insertion at the head", seen)
        elif origin.key in ("schedule", "retry"):
            self._judge("SCHED-20", False, step, "a push at the head", "a push at the tail")
        else:
            self._judge("FETCH-6", False, step, "the exact bytes that were fetched", "other bytes")

    def _at_head(self, step: Step, text: bytes, key: str) -> str | None:
        """Judge a push; return the jid if it is a first one."""
        seen_payloads, ledger = self._context.seen_payloads, self._ledger
        ledger.exercise("PUSH-1")
        job = self._parsed(step, text)
        jid = job.get("jid") if job else None
        origin = seen_payloads.origin(jid, step.record.sent)
        back = origin is not None and origin.text == text and origin.taken and origin.key == key
        if back and not self._may_hand_over:  # a hand-over goes to the head [X-CLASS-4]
            expected = "RPUSH, so that a job that is put back runs next"
            self._judge("FETCH-6", False, step, expected, "put back at the head")
        if job is None or seen_payloads.knows(text, step.record.sent):
            return None
        queue, name = job.get("queue"), key.removeprefix("queue:")
        # In a bulk, the fault is the use of one job's queue or time for all jobs.
        bulk = len(step.words) > 3
        rule = "BULK-5" if bulk else "KEY-2"
        if origin is not None and origin.key in ("schedule", "retry") and "queue" not in job:
            rule = "SCHED-17"
        self._judge(rule, queue == name, step, f'"queue":"{name}"', f'"queue":{queue!r}')
        if bulk:
            seen, soon = f"at {job.get('at')!r} in a queue", "at" not in job
            self._judge("BULK-15", soon, step, "a job with a time in schedule", seen)
            job.pop("at", None)
        self._now(step, job, "enqueued_at", "PUSH-3")
        if origin is not None:
            self._promoted(step, job, text, origin)
            return None
        self._authored(step, job, text, "pushed", job.get("enqueued_at"))
        self._in_order(step, job)
        return jid if isinstance(jid, str) else ""

    def _promoted(self, step: Step, job: dict[str, Any], text: bytes, origin: Origin) -> None:
        self._judge("SCHED-18", "at" not in job, step, "no at in a queue", f"at {job.get('at')!r}")
        self._time(step, job, "enqueued_at")
        self._spelled(step, text, origin)
        if origin.key in ("schedule", "retry"):
            self._ledger.exercise("SCHED-20")
            popped = self._popped.pop(str(job.get("jid")), None)
            expected = "removal and push in one atomic step"
            self._judge("SCHED-5", popped is None, step, expected, "two steps")
        before, _ = payloads.parse(origin.text)
        if before is None:
            return
        self._kept(step, before, job, {"args", "class"}, "PAY-7")
        added = [name for name in job if not (name in before or name.startswith("jw_"))]
        added = [name for name in added if name not in _PROMOTED | _FAILURE]
        expected = "added fields begin with jw_"
        self._judge("KEY-10", not added, step, expected, f"the fields {added}")
        lost = [name for name in before if name not in job and name != "at"]
        self._judge("PAY-7", not lost, step, "every field of the job", f"without {lost}")

    def _distinct(self, step: Step, jids: list[str]) -> None:
        if len(jids) > 1:
            twice = len(set(jids)) < len(jids)
            self._judge("BULK-2", not twice, step, "a jid for each job", "one jid for several jobs")

    def _clear(self, step: Step, unit: Unit) -> None:
        context = self._context
        for word in step.words[1:]:
            key = context.key(word)
            if not key.startswith("queue:"):
                continue
            name = key.removeprefix("queue:").encode("utf-8", "surrogateescape")
            together = unit.atomic and any(
                other.name == "SREM"
                and context.key(other.words[1]) == "queues"
                and name in other.words
                for other in unit.steps
            )
            expected = f"{step.name} {key} and SREM queues in one transaction"
            self._judge("INSP-9", together, step, expected, f"{step.name} without SREM")

    # -- sorted sets

    def _add(self, step: Step, unit: Unit, key: str) -> None:
        words = [*step.words[2:]]
        options = set()
        while words and words[0].upper() in _ZADD_OPTIONS:
            options.add(words.pop(0).upper())
        pairs = list(zip(words[::2], words[1::2], strict=False))
        jids = []
        for score, text in pairs:
            time = self._score(step, score)
            self._context.promises.keep("moved", str(hash(text)))
            if self._context.seen_payloads.knows(text, step.record.sent):
                self._ledger.exercise("INSP-8" if key == "schedule" else "KEY-3")
                if key == "dead":
                    self._ledger.exercise("EXEC-3")
            elif b"XX" not in options:  # which adds no member
                jids += self._member(step, key, text, time)
        self._distinct(step, [jid for jid in jids if jid])
        if key == "schedule":
            few = len(pairs) <= 100
            self._judge("BULK-7", few, step, "at most 100 scheduled jobs", f"{len(pairs)}")
        if key == "dead":
            self._trimmed(step, unit)

    def _score(self, step: Step, score: bytes) -> float:
        try:
            time = float(score)
        except ValueError:
            return math.nan
        shown = score.decode()
        good = math.isfinite(time) and 0 <= time < payloads.MILLISECONDS
        self._judge("SCHED-4", good, step, "a finite score from 0, below 10^11", shown)
        # A score of this size is a time of today in milliseconds, so its unit is wrong.
        seconds = not _LEAST_IN_MILLISECONDS <= time < 10 * _LEAST_IN_MILLISECONDS
        self._judge("GEN-4", seconds, step, "a score in seconds", shown)
        return time

    def _member(self, step: Step, key: str, text: bytes, score: float) -> list[str]:
        job = self._parsed(step, text, rule="KEY-3" if key != "dead" else None)
        if job is None:
            return []
        jid = job.get("jid")
        origin = self._context.seen_payloads.origin(jid, step.record.sent)
        if key == "schedule":
            absent = "at" not in job
            expected = "no at, because the score is the time"
            self._ledger.exercise("SCHED-13")
            self._judge("SCHED-12", absent, step, expected, f"at {job.get('at')!r}")
            if origin is None:
                self._authored(step, job, text, "scheduled", job.get("created_at"))
                return [jid] if isinstance(jid, str) else []
            self._spelled(step, text, origin)
            return []
        self._failed(step, key, job, text, origin)
        if key == "retry":
            before, _ = payloads.parse(origin.text) if origin else (None, [])
            # As it was read: a `retry` that is written wrongly is not a wrong count of retries.
            limit = (before or {}).get("retry")
            self._retry(step, job, score, job.get("retry") if limit is None else limit)
        else:
            near = abs(score - self._context.now) < _SLACK
            expected = f"the current time {self._context.now} as score"
            self._judge("DEAD-1", near, step, expected, f"{score}")
            poison = job.get("error_class") == "jobwire.PoisonPill"  # it has not failed [REL-10]
            wanted = poison or job.get("dead") is not False
            self._judge("DEAD-4", wanted, step, "no entry, because dead is false", "an entry")
        return []

    def _failed(
        self, step: Step, key: str, job: dict[str, Any], text: bytes, origin: Origin | None
    ) -> None:
        """Judge the payload of a failed job.

        [RETRY-2] [RETRY-3] [RETRY-7] [RETRY-8] [RETRY-17] [RETRY-19] [RETRY-32]
        """
        before, _ = payloads.parse(origin.text) if origin else (None, [])
        written = [field for field in _OWN_TIMES if _is_new(field, before, job)]
        ledger = self._ledger
        if key == "retry":
            for rule in ("RETRY-1", "RETRY-2", "RETRY-3"):
                ledger.exercise(rule)
            # A later failure may leave `failed_at` absent; a case asks for more. [RETRY-14]
            last = before or {}
            is_later = last.get("retry_count") is not None
            is_left_out = is_later and last.get("failed_at") is None and "failed_at" not in job
            judged = {**job, "failed_at": 0.0} if is_left_out else job
            if (count := payloads.whole(last.get("retry_count"))) is not None and count < -1:
                judged = {**judged, "retry_count": 0}  # one more is still below 0 [RETRY-19]
            self._schema(step, judged, "payload", "retry")
        message = job.get("error_message")
        if isinstance(message, str):
            short = len(message) <= 10_000
            seen = f"{len(message)} characters"
            self._judge("RETRY-3", short, step, "at most 10,000 characters", seen)
        if job.get("error_backtrace") is not None:
            self._ledger.exercise("RETRY-22")
            self._breach(step, "RETRY-8", payloads.backtrace_problem(job))
        if origin is None:
            time = job.get(written[-1]) if written else None
            self._authored(step, job, text, key, time, fresh=False)
            return
        for field in written:
            self._time(step, job, field)
        self._spelled(step, text, origin)
        if before is None:
            return
        owned = set(_FAILURE)
        if before.get("retry") is None:
            owned.add("retry")
        if before.get("created_at") is None:
            owned.add("created_at")
        self._kept(step, before, job, set(before) - owned, "PAY-7")
        added = [name for name in job if name not in before and name not in owned]
        added = [name for name in added if not name.startswith("jw_")]
        expected = "added fields begin with jw_"
        self._judge("KEY-10", not added, step, expected, f"the fields {added}")
        self._counted(step, before, job)
        failed = job.get("error_class") != _POISON
        if failed and origin.taken and origin.key.startswith("queue:"):
            wish = before.get("retry_queue")
            queue = wish if isinstance(wish, str) and wish else origin.key.removeprefix("queue:")
            same = job.get("queue") == queue
            usual = wish is None or wish is False or wish == queue
            rule = "RETRY-7" if usual else "RETRY-32"
            self._judge(rule, same, step, f'"queue":"{queue}"', repr(job.get("queue")))

    def _counted(self, step: Step, before: dict[str, Any], job: dict[str, Any]) -> None:
        if job.get("error_class") == _POISON:
            return
        last, count = payloads.whole(before.get("retry_count")), job.get("retry_count")
        rule, wanted = ("RETRY-2", 0) if last is None else ("RETRY-17", last + 1)
        if not (before.get("retry_count") is None or type(before["retry_count"]) is int):
            rule = "RETRY-19"  # genuine Sidekiq counts such a value otherwise, or loses the job
        self._judge(rule, count == wanted, step, f"retry_count {wanted}", f"{count!r}")
        if last is None:
            self._now(step, job, "failed_at", "RETRY-2")
        elif before.get("failed_at") is not None:
            first, now = before["failed_at"], job.get("failed_at")
            limited = payloads.whole(job.get("retry_for")) is not None
            if first == now or not limited or self._is_past(first):
                rule = "RETRY-17" if payloads.generation(first) else "RETRY-19"
                self._judge(rule, first == now, step, f"failed_at {first!r}", f"{now!r}")
            else:
                self._now(step, job, "failed_at", "RETRY-14")
            self._now(step, job, "retried_at", "RETRY-17")

    def _retry(self, step: Step, job: dict[str, Any], score: float, limit: object) -> None:
        self._ledger.exercise("RETRY-9")
        count = job.get("retry_count")
        if not isinstance(count, int):
            return
        if isinstance(limit, int) and not isinstance(limit, bool) and not job.get("retry_for"):
            seen = f"retry_count {count} with retry {limit}"
            expected = "the dead set, because the retries are exhausted"
            self._judge("RETRY-5", count < limit, step, expected, seen)
        base = count**4 + 15
        delay = score - self._context.now
        good = base - 5 <= delay <= base + 10 * (count + 1) + 1
        expected = f"{base} to {base + 10 * (count + 1)} s, unless the job chooses its delay"
        self._judge("RETRY-4", good, step, expected, f"{delay:.1f} s", doubtful=True)

    def _trimmed(self, step: Step, unit: Unit) -> None:
        context = self._context
        by_score = by_rank = None
        for other in unit.steps if unit.atomic else ():
            if len(other.words) >= 4 and context.key(other.words[1]) == "dead":
                if other.name == "ZREMRANGEBYSCORE":
                    by_score = other.words[3].decode("ascii", "replace")
                elif other.name == "ZREMRANGEBYRANK":
                    by_rank = other.words[3].decode("ascii", "replace")
        expected = "ZREMRANGEBYSCORE dead -inf <now - 15552000> in the same transaction"
        seen = "none" if by_score is None else f"up to {by_score}"
        self._judge("DEAD-2", by_score and _is_past(by_score, context.now), step, expected, seen)
        expected = "ZREMRANGEBYRANK dead 0 -10000 in the same transaction, which keeps 9,999"
        # The limit may be configured; -10001 is the usual mistake by one.
        good = by_rank is not None and by_rank.startswith("-") and by_rank != "-10001"
        self._judge("DEAD-3", good, step, expected, "none" if by_rank is None else f"to {by_rank}")

    def _removed(self, step: Step, unit: Unit, key: str) -> None:
        if unit.atomic or key not in ("schedule", "retry") or step.reply != 1:
            return
        job, _ = payloads.parse(step.words[2]) if len(step.words) > 2 else (None, [])
        if job is not None and len(self._popped) < 10_000:
            self._popped[str(job.get("jid"))] = self._context.now

    # -- reading

    def _read(self, unit: Unit) -> None:
        context = self._context
        for step in unit.steps:
            if step.reply is None or not step.worked or len(step.words) < 2:
                continue
            name, reply = step.name, step.reply
            if name in ("BRPOP", "BLPOP", "BLMPOP", "LMPOP"):
                if isinstance(reply, list) and len(reply) == 2:
                    self._taken(step, context.key(reply[0]), reply[1])
            elif name in ("RPOP", "LPOP", "RPOPLPUSH", "BRPOPLPUSH", "LMOVE", "BLMOVE"):
                self._taken(step, context.key(step.words[1]), reply)
            elif spec_of(name).runs_script:
                keys = [context.key(key) for key in keys_of(step.words)]
                self._script_read(step, script_sha(step.words) or "", keys)
            elif isinstance(reply, bytes | list):
                key = context.key(step.words[1])
                if key in _SETS or key.startswith(("queue:", "jobwire:")):
                    context.seen_payloads.read(
                        reply, key, step.record.at, taken=name.startswith(("ZPOP", "BZPOP"))
                    )

    def _taken(self, step: Step, key: str, reply: Any) -> None:
        context = self._context
        if not key.startswith("queue:"):
            return
        for text in context.seen_payloads.read(reply, key, step.record.at, taken=True):
            job, breaches = payloads.parse(text)
            if job is None and {breach.rule for breach in breaches} & {"PAY-1", "PAY-3"}:
                if text.lstrip()[:1] in (b"[", b'"', b"n", b"t", b"f") or text.isdigit():
                    continue  # perhaps JSON that is not an object [EXEC-4]
                expected = "ZADD dead of the exact bytes"
                seen = "a payload that is not JSON and was not added to dead"
                context.expect("moved", str(hash(text)), 30.0, "EXEC-3", step, expected, seen)

    def _script_read(self, step: Step, sha: str, keys: list[str]) -> None:
        seen_payloads, reply = self._context.seen_payloads, step.reply
        if canonical(sha) == "fetch" and isinstance(reply, list) and reply:
            entries = reply[0] if isinstance(reply[0], list) else []
            for field, payload in zip(entries[::4], entries[1::4], strict=False):
                name = self._context.key(field).partition(":")[2]
                seen_payloads.read(payload, f"queue:{name}", step.record.at, taken=True)
            return
        places = [key for key in keys if key in _SETS or key.startswith("queue:")]
        key = places[0] if len(places) == 1 else ""
        for text in seen_payloads.read(reply, key, step.record.at, taken=True):
            if sha in _SIDEKIQ_POPS:
                job, _ = payloads.parse(text)
                self._popped[str(job.get("jid") if job else None)] = self._context.now

    # -- parts of judgements

    def _parsed(self, step: Step, text: bytes, rule: str | None = "PAY-1") -> dict[str, Any] | None:
        job, breaches = payloads.parse(text)
        ledger = self._ledger
        if self._context.seen_payloads.knows(text, step.record.sent):
            return job
        for examined in ("PAY-3", "PAY-4", "PAY-8", "KEY-3" if rule == "KEY-3" else "PAY-1"):
            ledger.exercise(examined)
        for breach in breaches if rule else ():
            named = rule if breach.rule == "PAY-1" and rule else breach.rule
            self._accuse(step, breach._replace(rule=named))
        return job

    def _authored(
        self,
        step: Step,
        job: dict[str, Any],
        text: bytes,
        place: str,
        time: object,
        *,
        fresh: bool = True,
    ) -> None:
        """Judge a payload that the application has created."""
        ledger = self._ledger
        # A payload without any time shows no generation; another rule judges it.
        # One that the caller gave is kept, in any form. [PUSH-11]
        given = fresh and self._is_past(job.get("created_at"), _GIVEN_S)
        judged = [field for field in payloads.TIMES if not (given and field == "created_at")]
        times = [time, *map(job.get, judged)]
        shown = next(filter(None, map(payloads.generation, times)), None)
        number = shown or self._generations.get(step.record.process or step.record.connection, 8)
        for rule in ("PAY-9", "PAY-12", "PAY-30", "PUSH-6", "PUSH-4"):
            ledger.exercise(rule)
        if fresh:
            ledger.exercise("PAY-14")
            ledger.exercise("PUSH-11")
            self._generated(step, job.get("jid"))
        for breach in payloads.spelling(text):
            self._accuse(step, breach)
        for rule in payloads.SPELLING:
            ledger.exercise(rule)
        name = "7.3" if number == 7 else "8.1"
        for breach in payloads.schema_breaches(job, "payload", f"{place}-{name}"):
            if not (given and breach.path == "$.created_at"):
                self._accuse(step, breach)
        for field in judged:
            if field in job and payloads.generation(job[field]) == number:
                self._breach(step, f"GEN-{number - 6}", payloads.time_breach(field, job[field]))
        if shown is not None:
            self._mixed(step, shown)

    def _generated(self, step: Step, jid: object) -> None:
        """Judge the form of a new jid. The schema judges one that is not a text, or empty."""
        if isinstance(jid, str) and jid and not payloads.is_generated(jid):
            expected = "24 lower-case hexadecimal digits, unless the caller gave the jid"
            doubtful = not self._context.generated
            self._ledger.accuse(Finding("PAY-9", expected, repr(jid)[:60], step.record, doubtful))

    def _mixed(self, step: Step, number: int) -> None:
        """Judge whether a process writes one generation. A connection belongs to one process."""
        process = step.record.process or step.record.connection
        known = self._generations.setdefault(process, number)
        if known != number:
            expected = f"times of generation {known}, as before"
            self._judge(f"GEN-{known - 6}", False, step, expected, f"generation {number}")
            self._generations[process] = number

    def forget_generation(self) -> None:
        """Forget the generations, because a process that reads `processes` may change its own.

        [GEN-5]
        """
        self._generations.clear()

    def _time(self, step: Step, job: dict[str, Any], field: str) -> None:
        if field in job:
            number = payloads.generation(job[field]) or 8
            self._breach(step, f"GEN-{number - 6}", payloads.time_breach(field, job[field]))
            self._mixed(step, number)

    def _is_past(self, time: Any, seconds: float = 0.0) -> bool:
        """Return whether a time was at least so many seconds ago."""
        number = payloads.generation(time)
        latest = self._context.now - seconds
        return number is not None and (time / 1000 if number == 8 else time) <= latest

    def _now(self, step: Step, job: dict[str, Any], field: str, rule: str) -> None:
        time = job.get(field)
        number = payloads.generation(time)
        if number is None:
            self._judge(rule, False, step, f"the current time in {field}", repr(time))
            return
        assert isinstance(time, int | float)
        age = self._context.now - (time / 1000 if number == 8 else time)
        expected = f"the current time in {field}"
        self._judge(rule, abs(age) < _SLACK, step, expected, f"a time {age:.0f} s ago")

    def _spelled(self, step: Step, text: bytes, origin: Origin) -> None:
        """Judge the spelling, except for faults that the text had when it was read."""
        for rule in payloads.SPELLING:
            self._ledger.exercise(rule)
        before = {breach.rule for breach in payloads.spelling(origin.text)}
        for breach in payloads.spelling(text):
            if breach.rule not in before:
                self._accuse(step, breach)

    def _kept(
        self,
        step: Step,
        before: dict[str, Any],
        job: dict[str, Any],
        fields: set[str],
        rule: str,
    ) -> None:
        other = frozenset([*before, *job]) - fields
        names = payloads.changed(before, job, other)
        long = {name for name in fields if _has_long_integer(before.get(name))}
        for examined in (rule, "EXEC-5", *(["PAY-5"] if long else [])):
            self._ledger.exercise(examined)
        for name in names:
            blamed = "EXEC-5" if name == "args" else rule
            if name in long and name in job:
                blamed = "PAY-5"
            seen = f"{name}: {job.get(name)!r}"[:100]
            self._accuse(step, Breach(blamed, f"{name}: {before.get(name)!r}"[:100], seen))

    def _in_order(self, step: Step, job: dict[str, Any]) -> None:
        places = [[*job].index(name) for name in _ORDER if name in job]
        expected = "retry, queue, other options, args, class, jid, created_at, enqueued_at"
        self._judge("PAY-11", places == sorted(places), step, expected, ", ".join(job)[:100])

    def _schema(self, step: Step, value: Any, file: str, part: str) -> None:
        for breach in payloads.schema_breaches(value, file, part):
            self._accuse(step, breach)

    def _breach(self, step: Step, rule: str, breach: Breach | None) -> None:
        self._ledger.exercise(rule)
        if breach is not None:
            self._accuse(step, breach)

    def _accuse(self, step: Step, breach: Breach) -> None:
        self._ledger.accuse(Finding(breach.rule, breach.expected, breach.located, step.record))

    def _judge(
        self,
        rule: str,
        holds: object,
        step: Step,
        expected: str,
        seen: str,
        *,
        doubtful: bool = False,
    ) -> None:
        self._ledger.judge(rule, holds, step.record, expected, seen, doubtful=doubtful)


def _is_past(bound: str, now: float) -> bool:
    try:
        return float(bound.removeprefix("(")) < now
    except ValueError:
        return False


def _is_new(field: str, before: dict[str, Any] | None, job: dict[str, Any]) -> bool:
    """Return whether a failure has written a field, rather than carried it."""
    return field in job and (before is None or job[field] != before.get(field))


def _has_long_integer(value: Any) -> bool:
    """Return whether the value contains an integer that a double cannot hold."""
    if isinstance(value, dict):
        return any(map(_has_long_integer, value.values()))
    if isinstance(value, list):
        return any(map(_has_long_integer, value))
    return isinstance(value, int) and abs(value) > _DOUBLE_EXACT
