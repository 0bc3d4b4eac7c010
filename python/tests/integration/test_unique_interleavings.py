"""Every order of the steps of clients, workers, a promoter and a person around one lock.

Each state of a small world is loaded into a real server, and each step that is possible there is
carried out by the operations of the product. A state that was seen before is not explored again, so
all orders are covered. A program may end between two of its steps: it then takes no further one.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from harness.servers import Server
from jobwire.connection import sync
from jobwire.connection.resources import script
from jobwire.inspect import sets
from jobwire.inspect.entry import entry
from jobwire.protocol import cancelling, pushing
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.outcome import Outcome, ending, put_off
from jobwire.protocol.payload import decode, edit, encode
from jobwire.protocol.promotion import promoted
from jobwire.protocol.reliable import recover, script_fetch, script_finish
from jobwire.protocol.removal import removing
from jobwire.protocol.unique import UNIQUE, Lock, Scope, script_lock, script_unlock
from jobwire.protocol.wire import Arg, LuaScript, Script
from tests.integration.scripts.shell import DAY, KEYS, Shell, one

pytestmark = [pytest.mark.process, pytest.mark.guarantee]

DIGEST: Final = "a" * 64
DUE = 4e9  # after the clock of the server, which ends a lock whose time is over
LIMITS = DeadSetLimits(DUE)
WORKERS = "w1", "w2"
PLACES = KEYS.queue("q"), KEYS.schedule, KEYS.retry
LOCK = KEYS.unique(DIGEST)


@dataclass(frozen=True)
class World:
    """The state of the server, and the step of each program.

    Attributes:
        places: Payloads in the queue, `schedule` and `retry`.
        held: Field and payload in the private hash of each worker.
        leases: True for each worker that has its lease.
        lock: Id of the job that has the lock, or "".
        pushes: Pushes that each client has left.
        workers: The step of each worker, its field and its payload.
        seen: Payload and place that the promoter, and a person, have read and not yet changed.
        acted: True if the person has done something.
        faults: Faults that may still happen.
        late: Ids of jobs that may outlive their lock, or be outlived by it: its bound has passed,
            or a process that was taken for dead has started them.
        started: Ids that have been started.
        ended: Ids whose end was stored.
        accepted: Ids that a push has written.
    """

    places: tuple[tuple[bytes, ...], ...] = ((), (), ())
    held: tuple[tuple[tuple[str, bytes], ...], ...] = ((), ())
    leases: tuple[bool, ...] = (True, True)
    lock: str = ""
    pushes: tuple[int, ...] = (0, 0, 0)
    workers: tuple[tuple[str, str, bytes], ...] = (("idle", "", b""), ("idle", "", b""))
    seen: tuple[tuple[str, bytes] | None, ...] = (None, None)
    acted: bool = False
    faults: int = 1
    late: frozenset[str] = frozenset()
    started: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    accepted: frozenset[str] = frozenset()

    @property
    def live(self) -> list[str]:
        """Ids of the jobs that wait or are held; an id that is there twice comes twice."""
        waiting = [text for place in self.places for text in place]
        return [jid_of(text) for text in waiting + [text for held in self.held for _, text in held]]


Step = Callable[[Shell], World]


@dataclass(frozen=True)
class Rules:
    """The scope of the lock, and a mistake that is planted: "" for none."""

    scope: Scope
    mistake: str = ""


def jid_of(text: bytes) -> str:
    return str(decode(text, "q").jid)


def changed(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def job(jid: str, rules: Rules, *, at: float | None = None) -> ReadyPayload:
    """Return a job; all have the same key."""
    field = {"digest": DIGEST, "scope": rules.scope, "seconds": 60}
    fields = {"class": "A", "args": [], "jid": jid, "queue": "q", "created_at": 1, UNIQUE: field}
    lock = Lock(DIGEST, rules.scope, 60)
    return ReadyPayload(jid, "q", at, encode(fields), lock if lock.at_push else None)


# -- the server


def load(shell: Shell, world: World) -> None:
    """Give the server this state."""
    pipe = shell.plain.pipeline(transaction=False)
    pipe.flushdb()
    for key, texts in zip(PLACES, world.places, strict=True):
        if texts and key == PLACES[0]:
            pipe.rpush(key, *texts)
        elif texts:
            pipe.zadd(key, dict.fromkeys(texts, DUE))
    for name, held, lease in zip(WORKERS, world.held, world.leases, strict=True):
        pipe.sadd(KEYS.owners, name)
        if held:
            pipe.hset(KEYS.private(name), mapping=dict(held))
        if lease:
            pipe.hset(KEYS.process(name), "info", "{}")
    if world.lock:
        pipe.set(LOCK, world.lock)
    pipe.execute()


def stored(shell: Shell, world: World) -> World:
    """Return the world with the state that the server has now."""
    pipe = shell.plain.pipeline(transaction=False)
    pipe.lrange(PLACES[0], 0, -1)
    for key in PLACES[1:]:
        pipe.zrange(key, 0, -1)
    for name in WORKERS:
        pipe.hgetall(KEYS.private(name))
    pipe.get(LOCK)
    *places, first, second, lock = pipe.execute()
    held = [
        tuple(sorted((key.decode(), text) for key, text in one_held.items()))
        for one_held in (first, second)
    ]
    return replace(
        world,
        places=tuple(map(tuple, places)),
        held=tuple(held),
        lock=(lock or b"").decode(),
    )


def same(after: World) -> Step:
    """Return a step that sends nothing to the server."""
    return lambda shell: after


# -- the steps of each program


def steps(world: World, rules: Rules) -> Iterator[tuple[str, Step]]:
    """Yield each step that a program can take now, with its name."""
    yield from pushes(world, rules)
    for index in range(len(WORKERS)):
        yield from of_worker(world, rules, index)
    yield from of_promoter(world, rules)
    yield from of_person(world, rules)
    if world.faults:
        yield from of_faults(world)
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
        workers = changed(world.workers, index, (state, field, text))
        return replace(world, workers=workers, **more)

    def fetch(shell: Shell) -> World:
        shell.step(script_fetch(KEYS, name, ["q"], count=1, sequence=1))
        return at("fetched", "1:q", world.places[0][-1])

    def start(shell: Shell) -> World:
        jid, lock = jid_of(text), Lock(DIGEST, rules.scope, 60)
        started = world.started | {jid}
        if rules.scope == "until_start":
            shell.run(one(script_unlock(KEYS, DIGEST, jid)))
        elif rules.scope == "while_running" and shell.run(one(script_lock(KEYS, lock, jid)))[0]:
            return at("waits", field, text)
        # It has lost its lease and the job. An outcome that comes too late will release nothing.
        late = (
            {jid}
            if (field, text) not in world.held[index] and rules.scope == "while_running"
            else ()
        )
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

    if state == "idle" and world.places[0] and world.leases[index]:
        yield f"{name} fetches", fetch
    elif state == "fetched":
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
    if not world.leases[index] and world.leases[1 - index]:

        def recovery(shell: Shell) -> World:
            shell.run(recover(KEYS, own=WORKERS[1 - index], now=DUE))
            return world

        yield f"recovers {name}", recovery
        if state != "dead":
            beat = replace(world, leases=changed(world.leases, index, True))
            yield f"{name} beats", same(beat)


def of_promoter(world: World, rules: Rules) -> Iterator[tuple[str, Step]]:
    if (seen := world.seen[0]) is None:
        yield from looks(world, 0, ("schedule", "retry"))
        return
    place, text = seen

    def promote(shell: Shell) -> World:
        queue, new = promoted(text, now=DUE, generation=8)
        if rules.mistake == "takes the lock at promotion":
            if shell.plain.zrem(place, text):
                shell.run(pushing.push(KEYS, [job(jid_of(text), rules)]))
        else:
            words: list[Arg] = [text, 1, queue, new]
            shell.step(Script("promote", [place, KEYS.queues, PLACES[0]], words))
        return replace(world, seen=changed(world.seen, 0, None))

    yield "promotes", promote


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
            yield f"{'promoter' if who == 0 else 'person'} sees", same(after)


def of_faults(world: World) -> Iterator[tuple[str, Step]]:
    """A worker is killed, or loses its lease while it lives."""
    left = replace(world, faults=world.faults - 1)
    if world.leases[0]:
        slow = replace(left, leases=changed(world.leases, 0, False))
        dead = replace(slow, workers=changed(world.workers, 0, ("dead", "", b"")))
        yield "w1 is slow", same(slow)
        yield "w1 is killed", same(dead)


def passing_bound(world: World) -> Step:
    def pass_bound(shell: Shell) -> World:
        shell.plain.delete(LOCK)
        faults = world.faults - (world.lock in world.live)
        return replace(world, faults=faults, late=world.late | {world.lock})

    return pass_bound


# -- the properties


def problem(world: World, rules: Rules) -> str | None:
    """Return the property that a state breaks, or None."""
    live = world.live
    if len(set(live)) < len(live):
        return "a job is in two places"
    if lost := world.accepted - world.ended - {*live}:
        return f"{sorted(lost)} is lost"
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


def explore(shell: Shell, rules: Rules, first: World) -> tuple[int, int, str | None]:
    """Visit every state; return the numbers of states and steps, and the first problem."""
    known = {first: 0}
    before: dict[int, list[int]] = defaultdict(list)
    path: dict[World, tuple[World, str]] = {}
    waiting, rests, count = [first], [], 0
    while waiting:
        world = waiting.pop()
        possible = [*steps(world, rules)]
        for name, step in possible:
            load(shell, world)
            after = stored(shell, step(shell))
            count += 1
            if after not in known:
                known[after] = len(known)
                path[after] = world, name
                if (wrong := problem(after, rules)) is not None:
                    return len(known), count, f"{wrong}: {told(after, path)}"
                waiting.append(after)
            before[known[after]].append(known[world])
        if not world.live and not world.lock:
            rests.append(known[world])
    reached = {*rests}
    while rests:
        for earlier in before[rests.pop()]:
            if earlier not in reached:
                reached.add(earlier)
                rests.append(earlier)
    stuck = next((world for world, number in known.items() if number not in reached), None)
    return len(known), count, f"no end: {told(stuck, path)}" if stuck else None


def told(world: World, path: dict[World, tuple[World, str]]) -> str:
    """Return the steps that lead to a state."""
    names = []
    while world in path:
        world, name = path[world]
        names.append(name)
    return ", ".join(reversed(names))


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
    states, count, wrong = explore(shell, Rules(scope), first)
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


# These are found late: they take three seconds and more.
SLOW = "an end releases any lock", "a late end releases", "a deletion releases any lock"


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
    """X-UNIQ-3 to X-UNIQ-10: steps cut in two, a lock without its comparison, a forgotten end."""
    if mistake in PATCHES:
        name, old, new = PATCHES[mistake]
        source = script(name).source.decode()
        assert old in source
        patched = source.replace(old, new).encode()
        wrong_script = LuaScript(hashlib.sha1(patched).hexdigest(), patched)
        monkeypatch.setattr(
            sync, "script", lambda one: wrong_script if one == name else script(one)
        )
    assert explore(shell, Rules("until_done", mistake), BOTH)[2]
