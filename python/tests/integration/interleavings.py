"""Every order of the steps of some programs, each step carried out on a real server.

Each state of a small world is loaded into the server, and each step that is possible there is
carried out by the operations of the product. A state that was seen before is not explored again, so
all orders are covered. A program may end between two of its steps: it then takes no further one.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

import pytest

from jobwire.connection import sync
from jobwire.connection.resources import script
from jobwire.protocol.outcome import Outcome
from jobwire.protocol.payload import decode
from jobwire.protocol.promotion import promoted
from jobwire.protocol.reliable import recover, script_fetch
from jobwire.protocol.wire import Arg, Batch, Command, LuaScript, Script, command
from tests.integration.scripts.shell import KEYS, Shell, one

DUE: Final = 4e9  # after the clock of the server
WORKERS = "w1", "w2"
PLACES = KEYS.queue("q"), KEYS.schedule, KEYS.retry


@dataclass(frozen=True)
class Jobs:
    """The jobs on the server, and the step of each worker.

    Attributes:
        places: Payloads in the queue, `schedule` and `retry`.
        held: Field and payload in the private hash of each worker.
        leases: True for each worker that has its lease.
        workers: The step of each worker, its field and its payload.
        acted: True if the person has done something.
        faults: Faults that may still happen.
        accepted: Ids that a push has written.
        ended: Ids whose end was stored.
    """

    places: tuple[tuple[bytes, ...], ...] = ((), (), ())
    held: tuple[tuple[tuple[str, bytes], ...], ...] = ((), ())
    leases: tuple[bool, ...] = (True, True)
    workers: tuple[tuple[str, str, bytes], ...] = (("idle", "", b""), ("idle", "", b""))
    acted: bool = False
    faults: int = 1
    accepted: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()

    @property
    def live(self) -> list[str]:
        """Ids of the jobs that wait or are held; an id that is there twice comes twice."""
        waiting = [text for place in self.places for text in place]
        return [jid_of(text) for text in waiting + [text for held in self.held for _, text in held]]

    def at(self, index: int, state: str, field: str = "", text: bytes = b"", **more: Any) -> Self:
        """Return the world with a worker at another step."""
        return replace(self, workers=changed(self.workers, index, (state, field, text)), **more)

    def holds(self, index: int) -> bool:
        """Return whether a worker has not lost the job of its step."""
        return self.workers[index][1:] in self.held[index]


W = TypeVar("W", bound=Jobs)
Step: TypeAlias = Callable[[Shell], W] | W
"""A function that acts on the server and returns the world after it; or that world alone."""


@dataclass(frozen=True)
class Game(Generic[W]):
    """The rules of a world.

    Attributes:
        steps: Returns each step that a program can take now, with its name.
        load: Returns the commands that write the state beside the jobs.
        read: The commands that read it.
        stored: Returns a world with their replies.
        problem: Returns the property that a state breaks, or None.
        is_end: Tells whether a state is an end that each other one must be able to reach.
    """

    steps: Callable[[W], Iterable[tuple[str, Step[W]]]]
    load: Callable[[W], Sequence[Command]]
    read: Sequence[Command]
    stored: Callable[[W, Any], W]
    problem: Callable[[W], str | None]
    is_end: Callable[[W], bool]


def carry_out(shell: Shell, game: Game[W], world: W, step: Step[W]) -> W:
    """Give the server a state, and take a step; return the world after it."""
    if not callable(step):
        return step
    commands = [command("FLUSHDB"), *_load(world), *game.load(world)]
    shell.run(one(Batch(commands)))
    after = step(shell)
    queue, schedule, retry, first, second, *rest = shell.run(one(Batch([*_READ, *game.read])))
    held = tuple(
        tuple(sorted((field.decode(), text) for field, text in zip(*[iter(flat)] * 2, strict=True)))
        for flat in (first, second)
    )
    places = tuple(queue), tuple(sorted(schedule)), tuple(sorted(retry))
    return game.stored(replace(after, places=places, held=held), rest)


_READ = [
    command("LRANGE", PLACES[0], 0, -1),
    *(command("ZRANGE", key, 0, -1) for key in PLACES[1:]),
    *(command("HGETALL", KEYS.private(name)) for name in WORKERS),
]


def _load(world: Jobs) -> Iterator[Command]:
    for key, texts in zip(PLACES, world.places, strict=True):
        if texts and key == PLACES[0]:
            yield command("RPUSH", key, *texts)
        elif texts:
            yield command("ZADD", key, *(word for text in texts for word in (DUE, text)))
    yield command("SADD", KEYS.owners, *WORKERS)
    for name, held, lease in zip(WORKERS, world.held, world.leases, strict=True):
        if held:
            yield command("HSET", KEYS.private(name), *(word for pair in held for word in pair))
        if lease:
            yield command("HSET", KEYS.process(name), "info", "{}")


def explore(shell: Shell, game: Game[W], first: W) -> tuple[int, int, str | None]:
    """Visit every state; return the numbers of states and steps, and the first problem.

    A problem is told with the shortest history that leads to it.
    """
    known = {first: 0}
    before: dict[int, list[int]] = defaultdict(list)
    path: dict[W, tuple[W, str]] = {}
    waiting, ends, count = deque([first]), [], 0
    while waiting:
        world = waiting.popleft()
        for name, step in game.steps(world):
            after = carry_out(shell, game, world, step)
            count += 1
            if after not in known:
                known[after] = len(known)
                path[after] = world, name
                if (wrong := game.problem(after)) is not None:
                    return len(known), count, f"{wrong}: {_told(after, path)}"
                waiting.append(after)
            before[known[after]].append(known[world])
        if game.is_end(world):
            ends.append(known[world])
    reached = {*ends}
    while ends:
        for earlier in before[ends.pop()]:
            if earlier not in reached:
                reached.add(earlier)
                ends.append(earlier)
    stuck = next((world for world, number in known.items() if number not in reached), None)
    return len(known), count, f"no end: {_told(stuck, path)}" if stuck else None


def _told(world: W, path: dict[W, tuple[W, str]]) -> str:
    """Return the steps that lead to a state."""
    names = []
    while world in path:
        world, name = path[world]
        names.append(name)
    return ", ".join(reversed(names))


def plant(monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """Plant a mistake in a script."""
    source = script(name).source.decode()
    assert old in source
    patched = source.replace(old, new).encode()
    wrong = LuaScript(hashlib.sha1(patched).hexdigest(), patched)
    monkeypatch.setattr(sync, "script", lambda one: wrong if one == name else script(one))


# -- values and steps that all worlds have


def jid_of(text: bytes) -> str:
    return str(decode(text, "q").jid)


def changed(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def fetches(world: W, index: int) -> Iterator[tuple[str, Step[W]]]:
    """A worker fetches; or another one recovers its jobs, after its lease; or it has it again."""
    name, other = WORKERS[index], WORKERS[1 - index]
    state = world.workers[index][0]

    def fetch(shell: Shell) -> W:
        shell.step(script_fetch(KEYS, name, ["q"], count=1, sequence=1))
        return world.at(index, "fetched", "1:q", world.places[0][-1])

    def recovery(shell: Shell) -> W:
        shell.run(recover(KEYS, own=other, now=DUE))
        return world

    if state == "idle" and world.places[0] and world.leases[index]:
        yield f"{name} fetches", fetch
    if not world.leases[index] and world.leases[1 - index]:
        if world.held[index]:
            yield f"recovers {name}", recovery
        if state != "dead":
            yield f"{name} beats", replace(world, leases=changed(world.leases, index, True))


def promotes(world: W, key: str, text: bytes) -> Step[W]:
    """A promoter moves a job that it has seen to its queue, if it is still there."""

    def promote(shell: Shell) -> W:
        queue, new = promoted(text, now=DUE, generation=8)
        words: list[Arg] = [text, 1, queue, new]
        shell.step(Script("promote", [key, KEYS.queues, PLACES[0]], words))
        return world

    return promote


def faults(world: W) -> Iterator[tuple[str, Step[W]]]:
    """A worker is killed, or loses its lease while it lives."""
    if world.faults and world.leases[0]:
        leases = changed(world.leases, 0, False)
        slow = replace(world, leases=leases, faults=world.faults - 1)
        yield "w1 is slow", slow
        yield "w1 is killed", slow.at(0, "dead")


def lost_or_doubled(world: Jobs) -> str | None:
    """Return whether a job is nowhere, or in two places. [GUAR-1]"""
    live = world.live
    if len({*live}) < len(live):
        return "a job is in two places"
    lost = world.accepted - world.ended - {*live}
    return f"{sorted(lost)} is lost" if lost else None


def is_end(outcome: Outcome) -> bool:
    return outcome.place in ("", "dead")
