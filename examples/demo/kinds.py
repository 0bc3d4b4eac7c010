"""The kinds of jobs that the demo pushes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from redis import Redis

from examples import demo_app
from examples.demo import recorded
from examples.demo.ledger import Problem, Seen, Sent, has_outcome, problem
from jobwire.inspect import PeriodicEntry, PeriodicJobs

__all__ = ["Kind", "all_kinds", "queues"]


@dataclass(slots=True)
class Kind:
    """A row of the table.

    Attributes:
        name: The title of the row.
        promise: The expected outcome of its jobs, in words.
        push: Pushes the jobs.
        origin: Language of the client that writes the payloads.
        sent: The jobs that were pushed.
    """

    name: str
    promise: str
    push: Callable[[Redis], Iterable[Sent]]
    origin: str = "Python"
    sent: list[Sent] = field(default_factory=list)

    @property
    def made_due(self) -> set[str]:
        """Ids of the jobs whose retries the demo makes due early, because they must go on."""
        return {sent.jid for sent in self.sent if sent.retries and sent.fate != "waiting"}

    def left(self, seen: Seen) -> int:
        """Return the number of jobs without an outcome."""
        return sum(not has_outcome(sent, seen) for sent in self.sent)

    def later(self, seen: Seen) -> int:
        """Return the number of those that are scheduled or wait for a retry."""
        return sum(
            not has_outcome(sent, seen) and (sent.due > 0 or sent.jid in seen.retries)
            for sent in self.sent
        )

    def problems(self, seen: Seen) -> list[Problem]:
        """Return the wrong outcomes, at most one for each job."""
        if not self.sent:
            return [Problem("", "nothing was pushed")]
        return [fault for sent in self.sent if (fault := problem(sent, seen))]


def all_kinds() -> list[Kind]:
    """Return the rows of the table, in order."""
    from_ruby = [
        Kind(
            f"Sidekiq {version}",
            "args equal, failures kept",
            partial(recorded.push, jobs=jobs),
            origin="Ruby",
        )
        for version, jobs in recorded.load(demo_app.app.jobs).items()
    ]
    return [
        *from_ruby,
        Kind("plain", "arguments equal", _plain),
        Kind("bulk", "each ran once", _bulk),
        Kind("scheduled", "none ran early", _scheduled),
        Kind("failing, then fine", "fine after retries", _flaky),
        Kind("always failing", "retried once, then dead", _doomed),
        Kind("async", "pushed and run by asyncio", _async),
        Kind("periodic", "each push ran once", _periodic),
        Kind("unknown class", "kept for a worker that has it", _unknown),
        Kind("malformed JSON", "killed byte for byte", _malformed),
    ]


def queues() -> list[str]:
    """Return the queues that the worker must serve."""
    places = {job.place for jobs in recorded.load(demo_app.app.jobs).values() for job in jobs}
    names = {place.removeprefix("queue:") for place in places if place.startswith("queue:")}
    return sorted(names | {"default"})


def _jid(jid: str | None) -> str:
    assert jid is not None, "no client middleware of ours stops a job"
    return jid


def _plain(redis: Redis) -> Iterable[Sent]:
    yield Sent(_jid(demo_app.greet.enqueue("Ada")), args=["Ada", 1])
    yield Sent(_jid(demo_app.greet.enqueue("Grace 🚀", times=2)), args=["Grace 🚀", 2])
    odd = [2**70, -0.1, 1.0, None, True, {"a/b": [[], {}, 'é\u0000"\\']}]
    yield Sent(_jid(demo_app.echo.enqueue(*odd)), args=odd)
    # By its wire class alone, as a class that exists only in Ruby would be pushed.
    yield Sent(_jid(demo_app.app.client.push("EchoJob", ["by name"])), args=["by name"])


def _bulk(redis: Redis) -> Iterable[Sent]:
    numbers = range(1_000)
    jids = demo_app.square.enqueue_bulk([n] for n in numbers)
    return [Sent(_jid(jid), args=[n * n]) for jid, n in zip(jids, numbers, strict=True)]


def _scheduled(redis: Redis) -> Iterable[Sent]:
    now = time.time()
    yield Sent(
        _jid(demo_app.greet.enqueue_in(1.5, "in 1.5 s")), args=["in 1.5 s", 1], due=now + 1.5
    )
    soon = timedelta(seconds=1)
    yield Sent(_jid(demo_app.greet.enqueue_in(soon, "soon")), args=["soon", 1], due=now + 1)
    when = datetime.now(UTC) + timedelta(seconds=2)
    jid = _jid(demo_app.greet.enqueue_at(when, "at a time"))
    yield Sent(jid, args=["at a time", 1], due=when.timestamp())


def _flaky(redis: Redis) -> Iterable[Sent]:
    for failures in (1, 2, 2):
        jid = _jid(demo_app.flaky.enqueue(failures))
        yield Sent(jid, args=[failures], retries=tuple(range(failures)))


def _doomed(redis: Redis) -> Iterable[Sent]:
    for reason in ("out of paper", "out of ink"):
        yield Sent(_jid(demo_app.doomed.enqueue(reason)), "dead", retries=(0,))


def _async(redis: Redis) -> Iterable[Sent]:
    async def push() -> list[Sent]:
        try:
            arguments = [[f"https://example.org/{n}", 0.2] for n in range(10)]
            jids = await demo_app.fetch.aenqueue_bulk(arguments)
            jids.append(await demo_app.fetch.aenqueue("https://example.org/", 0.1))
            arguments.append(["https://example.org/", 0.1])
        finally:
            await demo_app.app.aclient.close()
        return [Sent(_jid(jid), args=args) for jid, args in zip(jids, arguments, strict=True)]

    return asyncio.run(push())


def _periodic(redis: Redis) -> Iterable[Sent]:
    """Write an entry that Ruby's sidekiq-cron would show as well, and enqueue it by hand."""
    entry = PeriodicEntry(
        name="greet every night",
        cron="0 3 * * * Europe/Berlin",
        job=demo_app.greet.name,
        args=["the night", 1],
    )
    with PeriodicJobs(demo_app.app.url) as jobs:
        jobs.save(entry)
        job = jobs.find(entry.name)
        assert job is not None, "it was just saved"
        for _ in range(2):
            yield Sent(jobs.run(job), args=["the night", 1])


def _unknown(redis: Redis) -> Iterable[Sent]:
    jid = _jid(demo_app.app.client.push("OnlyInRuby", [1, "two"], retry=3))
    yield Sent(jid, "waiting", retries=(0,))


def _malformed(redis: Redis) -> Iterable[Sent]:
    for text in (
        b'{"class":"EchoJob","args":[1',
        b"not JSON at all",
        b"\xff\xfe",
        b'["no object"]',
    ):
        redis.lpush("queue:default", text)
        yield Sent("", "killed", text=text)
