"""Every order of the steps of a client, workers, a promoter and a person around a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pytest

from harness.servers import Server
from jobwire.inspect import sets
from jobwire.inspect.entry import entry
from jobwire.protocol.batches import (
    BATCH,
    EVENTS,
    HowEnded,
    Membership,
    batch_of,
    is_cancelled,
    script_end,
    script_ended,
    script_open,
)
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.outcome import Outcome, ending
from jobwire.protocol.payload import decode, edit, encode
from jobwire.protocol.pushing import push_members
from jobwire.protocol.reliable import script_finish
from jobwire.protocol.removal import removing
from jobwire.protocol.times import stamp
from jobwire.protocol.wire import Command, command
from tests.integration import interleavings
from tests.integration.interleavings import (
    DUE,
    PLACES,
    WORKERS,
    Game,
    Jobs,
    explore,
    jid_of,
    plant,
)
from tests.integration.scripts.shell import DAY, KEYS, Shell, one

pytestmark = [pytest.mark.process, pytest.mark.guarantee]

LIMITS = DeadSetLimits(DUE)
OUTER = Membership("o", "c")
INNER = Membership("i", "c", OUTER)
BATCHES = {"o": OUTER, "i": INNER}
# The steps of the client: it opens and closes batches, and adds jobs to them.
FLAT = "open o", "add o a", "add o b", "close o"
NESTED = "open o", "open i", "add i a", "close i", "add o b", "close o"
LIFE = 1000  # seconds; each change gives a longer life


@dataclass(frozen=True)
class World(Jobs):
    """The jobs and their batches.

    Attributes:
        hashes: Fields of each batch.
        opened: Open members of each batch.
        failed: Failed members of each batch.
        pushed: Ids of the callbacks in their queue.
        dead: Payloads in the dead set.
        client: Number of steps that the client has taken; -1 if it was killed.
        members: Batch and id of each member that was added.
        again: Those that were added again after they had succeeded.
        ends: Id of a member, and how it has ended last.
        died: Batches that a death was told to.
        closed: Batches that were closed.
        cancelled: Callbacks that were due when a person cancelled the batches.
        wrong: A key that is there for ever.
    """

    hashes: tuple[tuple[tuple[str, bytes], ...], ...] = ((), ())
    opened: tuple[frozenset[str], ...] = (frozenset(), frozenset())
    failed: tuple[frozenset[str], ...] = (frozenset(), frozenset())
    pushed: tuple[str, ...] = ()
    dead: tuple[bytes, ...] = ()
    client: int = 0
    members: frozenset[tuple[str, str]] = frozenset()
    again: frozenset[tuple[str, str]] = frozenset()
    ends: frozenset[tuple[str, HowEnded]] = frozenset()
    died: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    cancelled: frozenset[str] | None = None
    wrong: str = ""

    def end(self, text: bytes, how: HowEnded) -> World:
        """Return the world after the end of a member."""
        jid, member = jid_of(text), batch_of(decode(text, "q").fields)
        assert member is not None
        around = {level.batch for level in member.lineage()} if how == "dead" else set()
        ends = {(other, end) for other, end in self.ends if other != jid} | {(jid, how)}
        return replace(
            self, ends=frozenset(ends), died=self.died | around, ended=self.ended | {jid}
        )

    def expected(self, batch: str) -> tuple[set[str], set[str], set[str]]:
        """Return the open and the failed members of a batch, and the callbacks that are due."""
        ends = dict(self.ends)
        opened, failed = set(), set()
        for of, jid in self.members:
            if of == batch and jid != "batch:i":
                how = ends.get(jid)
                if how is None:
                    opened.add(jid)
                elif how != "done":
                    failed.add(jid)
            elif of == batch:
                _, _, inner = self.expected("i")
                if "i:on_complete" not in inner:
                    opened.add(jid)
                elif "i:on_success" not in inner:
                    failed.add(jid)
        due = {f"{batch}:on_death"} if batch in self.died else set()
        if batch in self.closed and not opened:
            due |= {f"{batch}:on_complete"} | ({f"{batch}:on_success"} if not failed else set())
        return opened, failed, due


Step: TypeAlias = interleavings.Step[World]


@dataclass(frozen=True)
class Rules:
    """The program of the client; whether a person acts; faults; a mistake that is planted."""

    program: tuple[str, ...]
    person: bool = False
    faults: int = 0
    mistake: str = ""


# -- the server


def names(batch: str) -> tuple[str, str, str]:
    return KEYS.batch(batch), KEYS.batch_open(batch), KEYS.batch_failed(batch)


def load(world: World) -> Iterator[Command]:
    for index, batch in enumerate(BATCHES):
        values, opened, failed = names(batch)
        for field, value in world.hashes[index]:
            yield command("HSET", values, field, value)
        for key, jids in ((opened, world.opened[index]), (failed, world.failed[index])):
            if jids:
                yield command("SADD", key, *jids)
        for key in names(batch):
            yield command("EXPIRE", key, LIFE)
    for text in world.dead:
        yield command("ZADD", KEYS.dead, DUE, text)
    for jid in world.pushed:
        yield command("LPUSH", KEYS.queue("c"), encode({"jid": jid, "class": "C", "args": []}))


READ = [
    *(command("HGETALL", names(batch)[0]) for batch in BATCHES),
    *(command("SMEMBERS", key) for batch in BATCHES for key in names(batch)[1:]),
    *(command("TTL", key) for batch in BATCHES for key in names(batch)),
    command("LRANGE", KEYS.queue("c"), 0, -1),
    command("ZRANGE", KEYS.dead, 0, -1),
]


def stored(world: World, replies: Any) -> World:
    *flats, callbacks, dead = replies
    pairs = [zip(*[iter(flat)] * 2, strict=True) for flat in flats[:2]]
    groups = [frozenset(map(bytes.decode, group)) for group in flats[2:6]]
    after = replace(
        world,
        hashes=tuple(tuple(sorted((f.decode(), v) for f, v in pair)) for pair in pairs),
        opened=(groups[0], groups[2]),
        failed=(groups[1], groups[3]),
        pushed=tuple(sorted(map(jid_of, callbacks))),
        dead=tuple(sorted(dead)),
    )
    for index in range(len(BATCHES)):
        old, new = (
            (each.hashes[index], each.opened[index], each.failed[index]) for each in (world, after)
        )
        # 30 days from the last change, also those of the batch around it; -2: there is no key.
        lives = flats[6:9] if index == 0 else flats[6:12]
        if old != new and any(-2 < life <= LIFE for life in lives):
            after = replace(after, wrong="a change does not renew the time to live")
    return after


# -- the steps of each program


def steps(world: World, rules: Rules) -> Iterator[tuple[str, Step]]:
    """Yield each step that a program can take now, with its name."""
    yield from of_client(world, rules)
    for index in range(len(WORKERS)):
        yield from of_worker(world, rules, index)
    for text in world.places[2]:
        yield f"retries {jid_of(text)}", interleavings.promotes(world, KEYS.retry, text)
    if not world.acted:
        yield from of_person(world)
    yield from interleavings.faults(world)


def of_client(world: World, rules: Rules) -> Iterator[tuple[str, Step]]:
    if not 0 <= world.client < len(rules.program) or world.cancelled is not None:
        return
    step = rules.program[world.client]
    what, batch, jid = (*step.split(), "")[:3]
    member = BATCHES[batch]

    def act(after: World) -> Step:
        def do(shell: Shell) -> World:
            if what == "open":
                made = {
                    event: ReadyPayload(f"{batch}:{event}", "c", None, job(f"{batch}:{event}"))
                    for event in EVENTS
                }
                shell.run(one(script_open(KEYS, member, made, description="", now=1)))
                inside = {("o", "batch:i")} if member.parent else set()
                return replace(after, members=after.members | inside)
            if what == "close":
                shell.run(one(script_end(KEYS, member, "closed", at="1")))
                return replace(after, closed=after.closed | {batch})
            text = job(jid, member)
            cut = rules.mistake == "pushes before it adds"
            if cut and jid not in world.accepted:
                shell.plain.lpush(PLACES[0], text)
                return replace(world, accepted=world.accepted | {jid})
            shell.run(push_members(KEYS, member, [ReadyPayload(jid, "q", None, text)]))
            if cut:
                shell.plain.lrem(PLACES[0], 1, text)
            again = {(jid, "done")} & world.ends  # its id is not kept, so it runs again
            return replace(
                after,
                members=after.members | {(batch, jid)},
                accepted=after.accepted | {jid},
                again=after.again | ({(batch, jid)} if again else set()),
                ends=after.ends - again,
                ended=after.ended - {done for done, _ in again},
            )

        return do

    yield step, act(replace(world, client=world.client + 1))
    if world.faults and what != "open" and not (what == "close" and batch in world.closed):
        yield f"{step}, without a reply", act(replace(world, faults=world.faults - 1))
    if world.faults:
        yield "the client is killed", replace(world, client=-1, faults=world.faults - 1)


def job(jid: str, member: Membership | None = None) -> bytes:
    fields = {"class": "A", "args": [], "jid": jid, "queue": "q", "created_at": 1}
    if member is not None:
        fields |= {"enqueued_at": stamp(DUE, 8), BATCH: member.field()}
    return encode(fields)


def of_worker(world: World, rules: Rules, index: int) -> Iterator[tuple[str, Step]]:
    state, field, text = world.workers[index]
    name = WORKERS[index]

    def start(shell: Shell) -> World:
        member = batch_of(decode(text, "q").fields)
        assert member is not None
        dropped = shell.run(is_cancelled(KEYS, member))
        return world.at(index, "drops" if dropped else "runs", field, text)

    def end(outcome: Outcome, how: HowEnded | None, *, reply: bool = True) -> Step:
        def store(shell: Shell) -> World:
            whole = ending(KEYS, outcome, decode(text, "q"), now=DUE, generation=8)
            late = rules.mistake == "ends the member in a second step" and whole.ended
            limits = LIMITS if outcome.trims else None
            given = outcome if late else whole
            lost = shell.step(
                script_finish(KEYS, name, [(field, given)], day=DAY, dead_limits=limits)
            )
            after = world if lost or how is None else world.end(text, how)
            if rules.mistake == "a late outcome ends the member" and lost and whole.ended:
                shell.step(script_ended(KEYS, whole.ended))
            if late and not lost:
                return after.at(index, "ends", field, text)
            if not reply:
                after = replace(after, faults=after.faults - 1)
                return after.at(index, state, field, text)
            return after.at(index, "idle")

        return store

    yield from interleavings.fetches(world, index)
    if state == "fetched":
        yield f"{name} starts", start
    elif state == "drops":
        yield f"{name} drops", end(Outcome(counted=""), "dropped")
    elif state == "ends":

        def second(shell: Shell) -> World:
            how: HowEnded = dict(world.ends)[jid_of(text)]
            member = batch_of(decode(text, "q").fields)
            assert member is not None
            shell.step(script_end(KEYS, member, how, at="1", jid=jid_of(text)))
            return world.at(index, "idle")

        yield f"{name} ends", second
    elif state == "runs":
        yield f"{name} done", end(Outcome(), "done")
        if world.faults:
            yield f"{name} done, without a reply", end(Outcome(), "done", reply=False)
        if jid_of(text) == "a":
            yield f"{name} kills", end(Outcome("dead", text, counted="failed"), "dead")
        elif b"retry_count" not in text:
            again = edit(text, {"retry_count": 0})
            yield f"{name} fails", end(Outcome("retry", again, DUE, "failed"), None)


def of_person(world: World) -> Iterator[tuple[str, Step]]:
    """A person deletes, kills or retries a member, or cancels the batches."""
    acted = replace(world, acted=True)
    for place, texts in zip(PLACES, world.places, strict=True):
        for text in texts:

            def delete(shell: Shell, place: str = place, text: bytes = text) -> World:
                (step,) = removing(KEYS, place, [text], now=DUE, of_list=place == PLACES[0])
                shell.run(one(step))
                return acted.end(text, "dropped")

            def kill(shell: Shell, text: bytes = text) -> World:
                shell.run(sets.kill(KEYS, entry(text, KEYS.retry, DUE), LIMITS))
                return acted.end(text, "dead")

            yield f"deletes {jid_of(text)}", delete
            if place == KEYS.retry:
                yield f"kills {jid_of(text)}", kill
    for text in world.dead:
        again = replace(acted, ended=world.ended - {jid_of(text)})
        yield f"retries dead {jid_of(text)}", interleavings.promotes(again, KEYS.dead, text)
    if world.hashes[0]:

        def cancel(shell: Shell) -> World:
            shell.run(one(script_end(KEYS, OUTER, "cancelled", at="1")))
            due = {event for batch in BATCHES for event in world.expected(batch)[2]}
            return replace(acted, cancelled=frozenset(due))

        yield "cancels", cancel


# -- the properties


def problem(world: World, rules: Rules) -> str | None:
    """Return the property that a state breaks, or None."""
    if wrong := world.wrong or interleavings.lost_or_doubled(world):
        return wrong
    if len({*world.pushed}) < len(world.pushed):
        return "a callback was pushed twice"
    due: set[str] = set()
    for index, batch in enumerate(BATCHES):
        fields = dict(world.hashes[index])
        opened, failed, events = world.expected(batch)
        due |= events
        if not fields:
            continue
        added = [of for of, _ in world.members] + [of for of, _ in world.again]
        if int(fields["total"]) != added.count(batch):
            return f"the total of {batch} is wrong"
        # In a batch that is cancelled, one inside ends with its next member, or when it is closed.
        loose = {"batch:i"} if world.cancelled is not None else set()
        if (world.opened[index] ^ opened) - loose:
            return f"the open members of {batch} are wrong"
        if (world.failed[index] ^ failed) - loose:
            return f"the failed members of {batch} are wrong"
        left = {f"{batch}:{event}" for event in EVENTS if event in fields}
        if world.cancelled is None and left & {*world.pushed}:
            return "a callback that was pushed is left"
    if {*world.pushed} != (due if world.cancelled is None else world.cancelled):
        return f"callbacks: {world.pushed}, not {sorted(due)}"
    return None


def game(rules: Rules) -> Game[World]:
    """Return the rules of this world."""
    over = len(rules.program)
    return Game(
        steps=lambda world: steps(world, rules),
        load=lambda world: [*load(world)],
        read=READ,
        stored=stored,
        problem=lambda world: problem(world, rules),
        is_end=lambda world: (
            not world.live and (world.client in (-1, over) or world.cancelled is not None)
        ),
    )


@pytest.fixture
def shell(server: Server) -> Iterator[Shell]:
    shell = Shell(server)
    yield shell
    shell.redis.close()


STARTS = {
    "two members": Rules(FLAT),
    "a batch inside": Rules(NESTED),
    "a person": Rules(FLAT, person=True),
    "a fault": Rules(FLAT, faults=1),
}
LONG = {
    "a batch inside and a person": Rules(NESTED, person=True),
    "a batch inside and a fault": Rules(NESTED, faults=1),
    "a person and a fault": Rules(FLAT, person=True, faults=1),
}


def explored(shell: Shell, rules: Rules) -> tuple[int, int, str | None]:
    return explore(shell, game(rules), World(acted=not rules.person, faults=rules.faults))


@pytest.mark.parametrize(
    "start", [*STARTS, *(pytest.param(name, marks=pytest.mark.full) for name in LONG)]
)
def test_every_order_of_steps(shell: Shell, start: str, record_property: Any) -> None:
    """X-BATCH-1 to X-BATCH-11: exact sets, each callback once and in time, no job lost."""
    states, count, wrong = explored(shell, (STARTS | LONG)[start])
    assert wrong is None
    record_property("states", states)
    record_property("steps", count)


PLAIN, INSIDE, PERSONS, FAULTY = STARTS
PATCHES: dict[str, tuple[str, str, str, str]] = {
    "a late end counts": (
        FAULTY,
        "finish",
        'local fetched = redis.call("HGET", KEYS[1], ARGV[i])',
        'local fetched = "{}"',
    ),
    "an open batch completes": (PLAIN, "finish", 'left == 0 and state ~= "open"', "left == 0"),
    "a callback stays": (PLAIN, "finish", 'redis.call("HDEL", KEYS[batch], event)', ""),
    "a success stays failed": (PERSONS, "finish", 'redis.call("SREM", failed, member)', ""),
    "a failure before is forgotten": (PLAIN, "finish", 'lost == 0 and how ~= "failed"', "how ~= 1"),
    "a close pushes nothing": (PLAIN, "batch_end", "(how or act) and left", "how and left"),
    "the outer batch goes on": (INSIDE, "finish", "(completes or died)", "died"),
    "a death stays inside": (INSIDE, "finish", "(completes or died)", "completes"),
    "a batch is there for ever": (PLAIN, "finish", 'redis.pcall("EXPIRE", KEYS[of], 2592000)', ""),
    "a repeated member counts twice": (FAULTY, "batch_add", "jid) == 1 then", "jid) >= 0 then"),
    "a deletion ends no member": (PERSONS, "batch_end", 'redis.call("SREM", open, member)', ""),
}
PLANTED = {
    "pushes before it adds": PLAIN,
    "ends the member in a second step": PLAIN,
    "a late outcome ends the member": FAULTY,
}


@pytest.mark.parametrize("mistake", [*PLANTED, *PATCHES])
def test_a_planted_mistake_is_found(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    """X-BATCH-2 to X-BATCH-10: steps cut in two, a forgotten comparison, key or level."""
    if mistake in PATCHES:
        start, *patch = PATCHES[mistake]
        plant(monkeypatch, *patch)
    else:
        start = PLANTED[mistake]
    assert explored(shell, replace(STARTS[start], mistake=mistake))[2]
