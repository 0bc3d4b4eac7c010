"""Every order of the steps of clients, workers, a promoter and a person around one lock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import pytest

from harness.servers import Server
from jobwire.inspect import sets
from jobwire.inspect.entry import entry
from jobwire.protocol import cancelling, pushing
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.outcome import Outcome, ending, put_off
from jobwire.protocol.payload import decode, edit, encode
from jobwire.protocol.reliable import script_finish
from jobwire.protocol.removal import removing
from jobwire.protocol.unique import UNIQUE, Lock, Scope, script_lock, script_unlock
from jobwire.protocol.wire import Arg, Command, Script, command
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

DIGEST: Final = "a" * 64
LIMITS = DeadSetLimits(DUE)
LOCK = KEYS.unique(DIGEST)


@dataclass(frozen=True)
class World(Jobs):
    """The jobs and the lock.

    Attributes:
        lock: Id of the job that has the lock, or "".
        pushes: Pushes that each client has left.
        seen: Payload and place that the promoter, and a person, have read and not yet changed.
        late: Ids of jobs that may outlive their lock, or be outlived by it: its bound has passed,
            or a process that was taken for dead has started them.
        started: Ids that have been started.
    """

    lock: str = ""
    pushes: tuple[int, ...] = (0, 0, 0)
    seen: tuple[tuple[str, bytes] | None, ...] = (None, None)
    late: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()


Step: TypeAlias = interleavings.Step[World]


@dataclass(frozen=True)
class Rules:
    """The scope of the lock, and a mistake that is planted: "" for none."""

    scope: Scope
    mistake: str = ""


def job(jid: str, rules: Rules, *, at: float | None = None) -> ReadyPayload:
    """Return a job; all have the same key."""
    field = {"digest": DIGEST, "scope": rules.scope, "seconds": 60}
    fields = {"class": "A", "args": [], "jid": jid, "queue": "q", "created_at": 1, UNIQUE: field}
    lock = Lock(DIGEST, rules.scope, 60)
    return ReadyPayload(jid, "q", at, encode(fields), lock if lock.at_push else None)


def game(rules: Rules) -> Game[World]:
    """Return the rules of this world."""

    def load(world: World) -> list[Command]:
        return [command("SET", LOCK, world.lock)] if world.lock else []

    def stored(world: World, replies: Any) -> World:
        return replace(world, lock=(replies[0] or b"").decode())

    return Game(
        steps=lambda world: steps(world, rules),
        load=load,
        read=[command("GET", LOCK)],
        stored=stored,
        problem=lambda world: problem(world, rules),
        is_end=lambda world: not world.live and not world.lock,
    )


# -- the steps of each program


def steps(world: World, rules: Rules) -> Iterator[tuple[str, Step]]:
    """Yield each step that a program can take now, with its name."""
    yield from pushes(world, rules)
    for index in range(len(WORKERS)):
        yield from of_worker(world, rules, index)
    yield from of_promoter(world, rules)
    yield from of_person(world, rules)
    yield from interleavings.faults(world)
    if world.lock and (world.faults or world.lock not in world.live):
        yield "the bound passes", passing_bound(world)


def pushes(world: World, rules: Rules) -> Iterator[tuple[str, Step]]:
    """Three clients: one repeats its push, one schedules its job, one replaces another job."""
    for index, jid in enumerate("abc"):
        if not world.pushes[index]:
            continue
        # When its lock is gone, the same job would be a new one.
        released = world.started if rules.scope == "until_start" else frozenset()
        if jid in world.late | world.ended | released:
            continue

        def push(shell: Shell, index: int = index, jid: str = jid) -> World:
            ready = job(jid, rules, at=DUE if jid == "b" else None)
            left = changed(world.pushes, index, world.pushes[index] - 1)
            refused: object
            if jid == "c" and world.lock and ready.lock:
                refused = shell.run(pushing.replace(KEYS, ready, world.lock, now=DUE))
            elif rules.mistake == "pushes in two steps" and ready.lock:
                if not shell.run(one(script_lock(KEYS, ready.lock, jid)))[0]:
                    return replace(world, workers=(("push", "", ready.text), world.workers[1]))
                refused = "another"
            else:
                refused = shell.run(pushing.push(KEYS, [ready]))
            accepted = world.accepted if refused else world.accepted | {jid}
            gone = {world.lock} & world.accepted if jid == "c" and not refused else set()
            return replace(world, pushes=left, accepted=accepted, ended=world.ended | gone)

        yield f"push {jid}", push


def of_worker(world: World, rules: Rules, index: int) -> Iterator[tuple[str, Step]]:
    state, field, text = world.workers[index]
    name = WORKERS[index]

    def at(state: str, field: str = "", text: bytes = b"", **more: Any) -> World:
        return world.at(index, state, field, text, **more)

    def start(shell: Shell) -> World:
        jid, lock = jid_of(text), Lock(DIGEST, rules.scope, 60)
        started = world.started | {jid}
        if rules.scope == "until_start":
            shell.run(one(script_unlock(KEYS, DIGEST, jid)))
        elif rules.scope == "while_running" and shell.run(one(script_lock(KEYS, lock, jid)))[0]:
            return at("waits", field, text)
        # It has lost its lease and the job. An outcome that comes too late will release nothing.
        late = {jid} if not world.holds(index) and rules.scope == "while_running" else ()
        return at("runs", field, text, started=started, late=world.late.union(late))

    def finish(outcome: Outcome) -> Script:
        limits = LIMITS if outcome.trims else None
        return script_finish(KEYS, name, [(field, outcome)], day=DAY, dead_limits=limits)

    def end(outcome: Outcome) -> Step:
        def store(shell: Shell) -> World:
            whole = ending(KEYS, outcome, decode(text, "q"), now=DUE, generation=8)
            if rules.mistake == "keeps the lock at death" and outcome.place == "dead":
                whole = outcome
            if rules.mistake == "releases in a second step":
                lost = shell.step(finish(outcome))
                return at(
                    "idle" if lost or not whole.unlocks else "releases", "", text, **over(lost)
                )
            lost = shell.step(finish(whole))
            return at("idle", **over(lost))

        def over(lost: Any) -> dict[str, Any]:
            is_end = outcome.place in ("", "dead") and not lost
            return {"ended": world.ended | {jid_of(text)}} if is_end else {}

        return store

    yield from interleavings.fetches(world, index)
    if state == "fetched":
        yield f"{name} starts", start
    elif state == "waits":
        yield f"{name} puts off", end(put_off(text, "q", DUE))
    elif state == "runs":
        yield f"{name} done", end(Outcome())
        yield f"{name} kills", end(Outcome("dead", text, counted="failed"))
        if b"retry_count" not in text:
            again = edit(text, {"retry_count": 0}, drop=("enqueued_at",))
            yield f"{name} fails", end(Outcome("retry", again, DUE, "failed"))
    elif state == "releases":

        def release(shell: Shell) -> World:
            shell.run(one(script_unlock(KEYS, DIGEST, jid_of(text))))
            return at("idle")

        yield f"{name} releases", release
    elif state == "push":

        def write(shell: Shell) -> World:
            shell.plain.lpush(PLACES[0], text)
            jid = jid_of(text)
            return at("idle", accepted=world.accepted | {jid}, pushes=(0, *world.pushes[1:]))

        yield "the second step of a push", write


def of_promoter(world: World, rules: Rules) -> Iterator[tuple[str, Step]]:
    if (seen := world.seen[0]) is None:
        yield from looks(world, 0, ("schedule", "retry"))
        return
    place, text = seen

    after = replace(world, seen=changed(world.seen, 0, None))

    def push_again(shell: Shell) -> World:
        if shell.plain.zrem(place, text):
            shell.run(pushing.push(KEYS, [job(jid_of(text), rules)]))
        return after

    mistaken = rules.mistake == "takes the lock at promotion"
    yield "promotes", push_again if mistaken else interleavings.promotes(after, place, text)


def of_person(world: World, rules: Rules) -> Iterator[tuple[str, Step]]:
    """A person, or a client that cancels, acts on a job that was there some time ago."""
    if world.acted:
        return
    if (seen := world.seen[1]) is None:
        yield from looks(world, 1, (PLACES[0], "schedule", "retry"))
        return
    place, text = seen
    jid = jid_of(text)

    def act(how: str) -> Step:
        def do(shell: Shell) -> World:
            if how == "kill" and rules.mistake == "kills in two steps":
                words: list[Arg] = [LIMITS.now, LIMITS.oldest, LIMITS.limit, text]
                done = shell.step(Script("kill_due", [place, KEYS.dead], words))
                return replace(world, acted=True, ended=world.ended | ({jid} if done else set()))
            if how == "kill":
                done = shell.run(sets.kill(KEYS, entry(text, place, DUE), LIMITS))
            elif how == "delete":
                (step,) = removing(KEYS, place, [text], now=DUE, of_list=place == PLACES[0])
                done = shell.run(one(step))
            else:
                done = shell.run(one(cancelling.script_cancel(KEYS, place, text, jid, DUE)))
            return replace(world, acted=True, ended=world.ended | ({jid} if done else set()))

        return do

    for how in ("kill", "delete", "cancel") if place != PLACES[0] else ("delete", "cancel"):
        yield f"{how}s {jid}", act(how)


def looks(world: World, who: int, places: tuple[str, ...]) -> Iterator[tuple[str, Step]]:
    for key, texts in zip(PLACES, world.places, strict=True):
        for text in texts if key in places else ():
            after = replace(world, seen=changed(world.seen, who, (key, text)))
            yield f"{'promoter' if who == 0 else 'person'} sees", after


def passing_bound(world: World) -> Step:
    def pass_bound(shell: Shell) -> World:
        shell.plain.delete(LOCK)
        faults = world.faults - (world.lock in world.live)
        return replace(world, faults=faults, late=world.late | {world.lock})

    return pass_bound


# -- the properties


def problem(world: World, rules: Rules) -> str | None:
    """Return the property that a state breaks, or None."""
    if wrong := interleavings.lost_or_doubled(world):
        return wrong
    live = world.live
    if world.lock and world.lock not in {*live} | world.late:
        return "a lock outlives its job"
    for jid in {*live} - world.late - {world.lock}:
        running = any(
            state == "runs" and jid_of(text) == jid and (field, text) in held
            for (state, field, text), held in zip(world.workers, world.held, strict=True)
        )
        if (
            rules.scope == "until_done"
            or (rules.scope == "until_start" and jid not in world.started)
            or (rules.scope == "while_running" and running)
        ):
            return f"{jid} has no lock, or another job has it"
    return None


TWO = World(pushes=(2, 1, 0))
BOTH = World(pushes=(1, 1, 0))
REPLACED = World(pushes=(1, 0, 1))
# The person multiplies the states, and so does a fault.
STARTS: dict[str, tuple[Scope, World]] = {
    "a person": ("until_done", replace(TWO, faults=0)),
    "a fault": ("until_done", replace(TWO, acted=True)),
    "a replaced job and a person": ("until_done", replace(REPLACED, faults=0)),
    "a replaced job and a fault": ("until_done", replace(REPLACED, acted=True)),
}
LONG: dict[str, tuple[Scope, World]] = {
    "until_start, a person": ("until_start", replace(TWO, faults=0)),
    "until_start, a fault": ("until_start", replace(TWO, acted=True)),
    "while_running, a person": ("while_running", replace(BOTH, faults=0)),
    "while_running, a fault": ("while_running", replace(BOTH, acted=True)),
    "a person and a fault": ("until_done", TWO),
    "a replaced job, a person and a fault": ("until_done", REPLACED),
    "until_start, a person and a fault": ("until_start", TWO),
}


@pytest.fixture
def shell(server: Server) -> Iterator[Shell]:
    shell = Shell(server)
    yield shell
    shell.redis.close()


@pytest.mark.parametrize(
    "start", [*STARTS, *(pytest.param(name, marks=pytest.mark.full) for name in LONG)]
)
def test_every_order_of_steps(shell: Shell, start: str, record_property: Any) -> None:
    """X-UNIQ-3 to X-UNIQ-10: one holder, no lock without its job, no job lost, an end in reach."""
    scope, first = (STARTS | LONG)[start]
    states, count, wrong = explore(shell, game(Rules(scope)), first)
    assert wrong is None
    record_property("states", states)
    record_property("steps", count)


PATCHES: dict[str, tuple[str, str, str]] = {
    "an end releases any lock": ("finish", "== ARGV[i + 6]", '~= ""'),
    "a late end releases": (
        "finish",
        'local fetched = redis.call("HGET", KEYS[1], ARGV[i])',
        'local fetched = "{}"',
    ),
    "a deletion releases any lock": ("unlock", "holder == ARGV[1]", "true"),
    "a deletion of nothing releases": ("unlock", "if removed == 0 then", "if false then"),
    "a kill of nothing releases": (
        "unlock",
        'if not redis.call("ZSCORE", KEYS[2], ARGV[2]) then',
        "if false then",
    ),
    "a cancel keeps the lock": ("cancel", "holder = KEYS[5] and", "holder = false and"),
    "a push writes duplicates": ("lock", 'if holder == "" and place > 0', "if place > 0"),
    "a push takes any lock": ("lock", '(holder == "" or holder == jid)', "true"),
}
PLANTED = [
    "pushes in two steps",
    "releases in a second step",
    "keeps the lock at death",
    "takes the lock at promotion",
    "kills in two steps",
]


@pytest.mark.parametrize("mistake", [*PLANTED, *PATCHES])
def test_a_planted_mistake_is_found(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    """X-UNIQ-3 to X-UNIQ-10: steps cut in two, a lock without its comparison, a forgotten end."""
    if mistake in PATCHES:
        plant(monkeypatch, *PATCHES[mistake])
    assert explore(shell, game(Rules("until_done", mistake)), BOTH)[2]
