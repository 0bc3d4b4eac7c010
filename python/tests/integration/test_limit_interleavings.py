"""Every order of the steps of workers, a promoter and a person around one limit of jobs at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from unittest import mock

import pytest

from harness.servers import Server
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.limits import LIMIT, LimitOfJob, limit_of, script_free, script_take
from jobwire.protocol.outcome import Outcome
from jobwire.protocol.payload import decode, edit, encode
from jobwire.protocol.reliable import InFlightJob, resign, script_done, script_finish
from jobwire.protocol.removal import removing
from jobwire.protocol.times import stamp
from jobwire.protocol.wire import Command, command
from jobwire.worker.execute.limiting import Limits
from tests.integration import interleavings
from tests.integration.interleavings import (
    DUE,
    PLACES,
    WORKERS,
    Game,
    Jobs,
    changed,
    explore,
    jid_of,
    plant,
)
from tests.integration.scripts.shell import DAY, KEYS, Shell, one

pytestmark = [pytest.mark.process, pytest.mark.guarantee]

LEASE = 1e9  # seconds; a step of its own ends it
HELD, LINE, WAITS = (KEYS.limit("l", part) for part in ("held", "line", "jobs"))
AWAY = 2**52  # added to the place of a job that is missed where it waits
# The time of a job in `schedule`: now, the end of the first lease, or later.
NOW, FIRST_LEASE, LATER = 1.0, 2.8e9, DUE
RECENTLY, LONG_AGO = b"9000000000000", b"-99999999999999"  # since when a job is missed


@dataclass(frozen=True)
class World(Jobs):
    """The jobs and their limit.

    Attributes:
        times: Time of each job in `schedule`.
        slots: Slots, and whether their leases last.
        line: Ids of the jobs in line, and whether each is missed.
        waits: Fields of the hash of waiting jobs; when one was missed is not looked at.
        asked: Ids that a worker has refused and that got no slot since, in this order.
        told: Those whose places are known to the limit while they are in `schedule`.
        slow: Workers whose slots ended while they live.
        gone: Ids that a person has deleted, or that a worker starts after it has lost them.
        wrong: A step that broke the order.
    """

    times: tuple[tuple[bytes, float], ...] = ()
    slots: tuple[tuple[str, bool], ...] = ()
    line: tuple[tuple[str, bool], ...] = ()
    waits: tuple[tuple[bytes, bytes], ...] = ()
    asked: tuple[str, ...] = ()
    told: frozenset[str] = frozenset()
    slow: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    wrong: str = ""

    @property
    def taken(self) -> list[list[str]]:
        """Cost, job and token of each slot whose lease lasts; no token: kept for the job."""
        return [slot.split(":") for slot, lasts in self.slots if lasts]


Step: TypeAlias = interleavings.Step[World]


@dataclass(frozen=True)
class Rules:
    """The bounds of a world.

    Attributes:
        at_once: Slots in all.
        costs: The cost of each job.
        fails: Whether the first job may fail once, and the second one die.
        person: Whether a person may delete a job.
        faults: Faults that may happen.
        mistake: A mistake that is planted: "" for none.
    """

    at_once: int
    costs: str
    fails: bool = False
    person: bool = False
    faults: int = 0
    mistake: str = ""

    @property
    def first(self) -> World:
        """The world before the first step: all jobs are in the queue."""
        texts: list[bytes] = []
        for jid, cost in zip("abc", self.costs, strict=False):
            limit = {"name": "l", "at_once": self.at_once, "cost": int(cost)}
            fields = {"class": "A", "args": [], "jid": jid, "queue": "q", "created_at": 1}
            fields["enqueued_at"] = stamp(DUE, 8)  # as a promotion writes it
            texts.insert(0, encode({**fields, LIMIT: limit}))
        return World(
            places=(tuple(texts), (), ()),
            accepted=frozenset(map(jid_of, texts)),
            acted=not self.person,
            faults=self.faults,
        )


def limit_in(text: bytes) -> LimitOfJob:
    limit = limit_of(decode(text, "q").get(LIMIT))
    assert limit is not None
    return limit


# -- the server


def load(world: World) -> Iterator[Command]:
    for text, at in world.times:
        yield command("ZADD", KEYS.schedule, at, text)
    for slot, lasts in world.slots:
        yield command("ZADD", HELD, FIRST_LEASE * 1000 if lasts else 1, slot)
    for place, (jid, missed) in enumerate(world.line, 1):
        yield command("ZADD", LINE, place + AWAY * missed, jid)
    for field, value in world.waits:
        yield command("HSET", WAITS, field, value)


READ = [
    command("ZRANGE", KEYS.schedule, 0, -1, "WITHSCORES"),
    command("ZRANGE", HELD, 0, -1, "WITHSCORES"),
    command("ZRANGE", LINE, 0, -1, "WITHSCORES"),
    command("HGETALL", WAITS),
]


def stored(world: World, replies: Any) -> World:
    times, held, line, waits = (list(zip(*[iter(flat)] * 2, strict=True)) for flat in replies)
    now = time.time() + 60

    def kind(at: bytes) -> float:
        return NOW if float(at) < now else FIRST_LEASE if float(at) < LATER - 1e9 else LATER

    places = [(float(at) % AWAY, jid.decode(), float(at) >= AWAY) for jid, at in line]
    after = replace(
        world,
        times=tuple(sorted((text, kind(at)) for text, at in times)),
        slots=tuple(sorted((slot.decode(), float(end) > now) for slot, end in held)),
        line=tuple((jid, missed) for _, jid, missed in sorted(places)),
        waits=tuple(
            sorted(
                (field, RECENTLY if field.endswith(b":missed") and value != LONG_AGO else value)
                for field, value in waits
            )
        ),
    )
    # A slot goes to the first job in line that is where it waits. The start of a job is none anew.
    told = world.told & {jid_of(text) for text, _ in after.times}
    had = {tuple(slot.split(":")[1:]) for slot, _ in world.slots}
    now_has = {(jid, token) for _, jid, token in after.taken}
    new = {jid for jid, token in now_has - had if not (token and (jid, "") in had)}
    asked = tuple(jid for jid in world.asked if jid not in new)
    for jid in new:
        ahead = world.asked[: world.asked.index(jid)] if jid in world.asked else asked
        if told & ({*ahead} - new):
            after = replace(after, wrong=f"{jid} overtakes a job in line")
    slow = world.slow - {token for _, token in now_has}
    return replace(after, told=told, asked=asked, slow=slow)


# -- the steps of each program


def steps(world: World, rules: Rules) -> Iterator[tuple[str, Step]]:
    """Yield each step that a program can take now, with its name."""
    for index in range(len(WORKERS)):
        yield from of_worker(world, rules, index)
    yield from of_promoter(world)
    if not world.acted:
        yield from of_person(world)
    yield from interleavings.faults(world)
    yield from of_leases(world)


def of_worker(world: World, rules: Rules, index: int) -> Iterator[tuple[str, Step]]:
    state, field, text = world.workers[index]
    name = WORKERS[index]

    def at(state: str, field: str = "", text: bytes = b"", **more: Any) -> World:
        return world.at(index, state, field, text, **more)

    def ask(shell: Shell) -> World:
        limits = Limits(shell.redis, KEYS, lease=LEASE)
        jid = jid_of(text)
        token = "x" if rules.mistake == "one token for all" else name
        with mock.patch("secrets.token_hex", return_value=token):
            refused = limits.refuse(InFlightJob(field, "q", text), decode(text, "q"))
        gone = world.gone if world.holds(index) else world.gone | {jid}
        if refused is None:
            return at("runs", field, text, gone=gone)
        asked = world.asked if jid in world.asked else (*world.asked, jid)
        return at("waits", field, refused.text, asked=asked, gone=gone)

    def free(after: World) -> Step:
        def release(shell: Shell) -> World:
            limit, jid = limit_in(text), jid_of(text)
            slot = limit.slot(jid, "x" if rules.mistake == "one token for all" else name)
            shell.step(script_free(KEYS, limit, "q", slot=slot, lease=LEASE))
            return replace(after, slow=after.slow - {name})

        return release

    def tell(shell: Shell) -> World:
        jid = jid_of(text)
        shell.step(script_free(KEYS, limit_in(text), "q", jid=jid, text=text, lease=LEASE))
        return at("idle", told=world.told | {jid})

    def end(outcome: Outcome, then: str) -> Step:
        def store(shell: Shell) -> World:
            if not outcome.place:
                lost = shell.step(script_done(KEYS, name, [field], failed=False, day=DAY))
            else:
                limits = DeadSetLimits(DUE) if outcome.trims else None
                ends = [(field, outcome)]
                lost = shell.step(script_finish(KEYS, name, ends, day=DAY, dead_limits=limits))
            if lost and (then == "tells" or rules.mistake == "a lost outcome frees nothing"):
                return at("idle")
            done = {jid_of(text)} if interleavings.is_end(outcome) and not lost else set()
            return at(then, "", text, ended=world.ended | done)

        return store

    yield from interleavings.fetches(world, index)
    if state == "fetched":
        yield f"{name} asks", ask
    elif state == "waits":
        yield f"{name} puts off", end(Outcome("schedule", text, LATER, counted=""), "tells")
    elif state == "tells":
        yield f"{name} tells", tell
    elif state == "runs" and rules.mistake == "frees before it stores":
        yield f"{name} frees", free(at("freed", field, text))
    elif state in ("runs", "freed"):
        then = "frees" if state == "runs" else "idle"
        yield f"{name} done", end(Outcome(), then)
        if rules.fails and jid_of(text) == "b":
            yield f"{name} kills", end(Outcome("dead", text, counted="failed"), then)
        elif rules.fails and b"retry_count" not in text:
            again = edit(text, {"retry_count": 0})
            yield f"{name} fails", end(Outcome("retry", again, DUE, "failed"), then)
    elif state == "frees":
        yield f"{name} frees", free(at("idle"))
    elif state == "stops":
        yield f"{name} frees", free(at("dead"))
    if state == "runs" and (world.faults and index == 0):

        def stop(shell: Shell) -> World:
            shell.run(resign(KEYS, name, now=DUE))
            leases = changed(world.leases, 0, False)
            return at("stops", "", text, leases=leases, faults=world.faults - 1)

        yield f"{name} stops", stop
    if state == "runs" and name in world.slow:

        def renew(shell: Shell) -> World:
            limit = limit_in(text)
            shell.step(script_take(KEYS, limit, jid_of(text), name, renew=True, lease=LEASE))
            return world

        yield f"{name} renews", renew


def of_promoter(world: World) -> Iterator[tuple[str, Step]]:
    """A job is promoted when it is due. Time passes if nothing else happens, or by a fault."""
    for text in world.places[2]:
        yield f"retries {jid_of(text)}", interleavings.promotes(world, KEYS.retry, text)
    quiet = not world.places[0] and {state for state, _, _ in world.workers} <= {"idle", "dead"}
    for text, at in world.times:
        jid, after = jid_of(text), world
        if at != NOW and not quiet:
            after = replace(world, faults=world.faults - 1)
        if after.faults >= 0:
            yield f"promotes {jid}", interleavings.promotes(after, KEYS.schedule, text)


def of_person(world: World) -> Iterator[tuple[str, Step]]:
    """A person deletes a job where it waits."""
    for place, texts in zip(PLACES, world.places, strict=True):
        for text in texts:

            def delete(shell: Shell, place: str = place, text: bytes = text) -> World:
                of_list = place == PLACES[0]
                (step,) = removing(KEYS, place, [text], now=DUE, of_list=of_list)
                assert shell.run(one(step))
                jid = {jid_of(text)}
                return replace(world, acted=True, ended=world.ended | jid, gone=world.gone | jid)

            yield f"deletes {jid_of(text)}", delete


def of_leases(world: World) -> Iterator[tuple[str, Step]]:
    """The lease of a slot ends: that of a dead process or a lost job; or any other, by a fault."""
    live = {*world.live}
    for slot, lasts in world.slots:
        _, jid, token = slot.split(":")
        index = WORKERS.index(token) if token in WORKERS else None
        state = world.workers[index][0] if index is not None else ""
        nobodys = state == "dead" or (not token and jid not in live)
        if not lasts or not (nobodys or world.faults):
            continue
        ended = tuple((each, last and each != slot) for each, last in world.slots)
        times = tuple((text, NOW if at == FIRST_LEASE else at) for text, at in world.times)
        slow = world.slow | ({token} if state in ("runs", "freed") else set())
        left = world.faults - (not nobodys)
        yield (
            f"the lease of {slot} ends",
            replace(world, slots=ended, times=times, slow=slow, faults=left),
        )
    for place, (field, value) in enumerate(world.waits):
        jid = field.decode().partition(":")[0]
        if value == RECENTLY and jid not in world.live:
            waits = changed(world.waits, place, (field, LONG_AGO))
            yield f"{jid} is missed for long", replace(world, waits=waits)


# -- the properties


def problem(world: World, rules: Rules) -> str | None:
    """Return the property that a state breaks, or None."""
    if wrong := world.wrong or interleavings.lost_or_doubled(world):
        return wrong
    if sum(int(cost) for cost, _, _ in world.taken) > rules.at_once:
        return "more slots than the limit"
    running = [
        limit_in(text).cost
        for name, (state, _, text) in zip(WORKERS, world.workers, strict=True)
        if state in ("runs", "freed") and name not in world.slow
    ]
    if sum(running) > rules.at_once:
        return "more jobs at once than the limit"
    states = {name: worker[0] for name, worker in zip(WORKERS, world.workers, strict=True)}
    live = {*world.live}
    for _, jid, token in world.taken:
        if states.get(token) in ("idle", "fetched") or (not token and jid not in live | world.gone):
            return f"a slot of {jid} stays"
    waits = {field.decode().partition(":")[0] for field, _ in world.waits}
    if left := ({jid for jid, _ in world.line} | waits) - live - world.gone:
        return f"{left} stays in line"
    if rules.person or not {*states.values()} <= {"idle", "runs", "dead"}:
        return None
    first, *_ = world.asked or ("",)
    (wait,) = [at for text, at in world.times if jid_of(text) == first] or [NOW]
    late = wait == LATER and world.faults == rules.faults
    if first in world.told and wait != NOW and (late or not world.taken):
        return f"{first} is the first in line and waits for nothing"
    return None


def is_end(world: World) -> bool:
    over = {state for state, _, _ in world.workers} <= {"idle", "dead"}
    return over and not world.live and not world.taken


def game(rules: Rules) -> Game[World]:
    """Return the rules of this world."""
    return Game(
        steps=lambda world: steps(world, rules),
        load=lambda world: [*load(world)],
        read=READ,
        stored=stored,
        problem=lambda world: problem(world, rules),
        is_end=is_end,
    )


@pytest.fixture
def shell(server: Server) -> Iterator[Shell]:
    shell = Shell(server)
    yield shell
    shell.redis.close()


STARTS = {
    "three jobs": Rules(1, "111"),
    "a heavy job": Rules(2, "121"),
    "a person": Rules(1, "11", fails=True, person=True),
    "a fault": Rules(1, "11", faults=1),
}
LONG = {
    "failures of three jobs": Rules(1, "111", fails=True),
    "a failure and a fault": Rules(1, "11", fails=True, faults=1),
}


@pytest.mark.parametrize(
    "start", [*STARTS, *(pytest.param(name, marks=pytest.mark.full) for name in LONG)]
)
def test_every_order_of_steps(shell: Shell, start: str, record_property: Any) -> None:
    """X-LIMIT-3 to X-LIMIT-7: never above the limit, no slot and no job left, in order."""
    rules = (STARTS | LONG)[start]
    states, count, wrong = explore(shell, game(rules), rules.first)
    assert wrong is None
    record_property("states", states)
    record_property("steps", count)


HEAVY, PERSONS, FAULTY = [*STARTS][1:]
PATCHES: dict[str, tuple[str, str, str, str]] = {
    "a renewal takes a slot back": (FAULTY, "limit_take", '"XX", now', "now"),
    "a start looks at no slots": (HEAVY, "limit_take", "room >= tonumber(ARGV[2])", "true"),
    "a start looks at no line": (HEAVY, "limit_take", '"+inf") == 0', '"+inf") >= 0'),
    "a kept slot stays": (FAULTY, "limit_take", 'redis.call("ZREM", KEYS[1], kept)', ""),
    "a place is lost": (FAULTY, "limit_take", "elseif not place then", "else"),
    "a start stays in line": (PERSONS, "limit_take", 'redis.call("ZREM", KEYS[2], ARGV[3])', ""),
    "a free slot stays free": (FAULTY, "limit_free", "local fits = true", "local fits = false"),
    "a heavy job is overtaken": (HEAVY, "limit_free", "fits = fits and serve", "fits = serve"),
    "the next one stays": (PERSONS, "limit_free", 'redis.call("ZREM", KEYS[4], member)', ""),
    "no lease is waited for": (FAULTY, "limit_free", '"XX", (slots[2]', '"NX", (slots[2]'),
}
PLANTED = "frees before it stores", "one token for all", "a lost outcome frees nothing"
SLOW = ("a place is lost",)


@pytest.mark.parametrize(
    "mistake",
    [
        *(name for name in [*PLANTED, *PATCHES] if name not in SLOW),
        *(pytest.param(name, marks=pytest.mark.full) for name in SLOW),
    ],
)
def test_a_planted_mistake_is_found(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    """X-LIMIT-3 to X-LIMIT-7: steps cut in two or in another order, a forgotten comparison."""
    start = FAULTY
    if mistake in PATCHES:
        start, *patch = PATCHES[mistake]
        plant(monkeypatch, *patch)
    rules = replace(STARTS[start], mistake=mistake)
    assert explore(shell, game(rules), rules.first)[2]
