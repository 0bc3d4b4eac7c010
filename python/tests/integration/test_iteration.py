"""Iterable jobs with a real server: the saved states, and the items at which jobs continue."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from harness.servers import Server
from jobwire.application.iterabletype import IterableSpec, define_iterable
from jobwire.connection.sync import SyncRedis
from jobwire.errors import NoReply, RedisRefused, RedisUnreachable, Shutdown
from jobwire.iterables import over_sequence
from jobwire.protocol.iteration import (
    STATE_TTL_S,
    Cancellation,
    Cursor,
    Interrupted,
    State,
    UnreadableState,
    cancel,
    load,
    save,
)
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job, decode
from jobwire.protocol.wire import Command, Op, once
from jobwire.worker.execute.iterating import Iterations

KEYS = Keys()
JID = "9f2c1b7a4d3e5f60718293a4"
KEY = f"it-{JID}"


def job(*args: Any, jid: str | None = JID) -> Job:
    fields: dict[str, Any] = {"class": "Rebuild", "args": list(args), "jid": jid}
    return decode(json.dumps(fields).encode(), "default")


class World:
    """A job over numbers and a worker for it, with a clock that advances by 1 s at each item.

    Attributes:
        items: Items that have begun, in order.
        log: Items and callbacks, in order.
        at: Item to the function that runs before the item is done.
    """

    def __init__(self, server: Server, *, is_async: bool = False, **options: Any) -> None:
        self.redis: Any = server.client()
        self.shell = SyncRedis(server.url, timeout=2)
        self.now = 100.0
        self.pace = 1.0
        self.stopping = False
        self.is_async = is_async
        self.items: list[int] = []
        self.log: list[Any] = []
        self.at: dict[int, Callable[[], object]] = {}
        self.max_runtime: float | None = None
        self.cursors: list[Cursor] = []
        moments = ("on_start", "on_resume", "on_stop", "on_cancel", "on_complete")
        callbacks: dict[str, Any] = {moment: self._callback(moment) for moment in moments}
        function = self._arebuild if is_async else self._rebuild
        self.spec: IterableSpec = define_iterable(function, callbacks | options)[0]

    def _callback(self, moment: str) -> Callable[..., object]:
        def note(cursor: Cursor, count: int) -> None:
            assert isinstance(cursor, Cursor)
            assert type(count) is int
            self.log.append(moment)

        async def anote(cursor: Cursor, count: int) -> None:
            await asyncio.sleep(0)
            note(cursor, count)

        return anote if self.is_async else note

    def _do(self, item: int) -> None:
        self.items.append(item)
        self.log.append(item)
        self.now += self.pace
        self.at.get(item, lambda: None)()

    def _rebuild(self, cursor: Cursor, count: int) -> Iterator[object]:
        self.cursors.append(cursor)
        try:
            for item, at in over_sequence(cursor, range(count)):
                yield at
                self._do(item)
        finally:
            self.log.append("closed")

    async def _arebuild(self, cursor: Cursor, count: int) -> AsyncIterator[object]:
        self.cursors.append(cursor)
        try:
            for item, at in over_sequence(cursor, range(count)):
                yield at
                await asyncio.sleep(0)
                self._do(item)
        finally:
            self.log.append("closed")

    def stop(self) -> None:
        self.stopping = True

    def run(self, count: int = 20, **options: Any) -> None:
        self.items, self.log = [], []
        iterations = Iterations(
            self.shell,
            KEYS,
            stopping=lambda: self.stopping,
            max_runtime=self.max_runtime,
            clock=lambda: self.now,
        )
        one = job(count, jid=options.pop("jid", JID))
        if self.is_async:
            asyncio.run(iterations.arun(one, self.spec, **options))
        else:
            iterations.run(one, self.spec, **options)

    def state(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.redis.hgetall(KEY).items()}

    def close(self) -> None:
        self.shell.close()


@pytest.fixture(params=["sync", "async"])
def world(request: pytest.FixtureRequest, server: Server) -> Iterator[World]:
    made = World(server, is_async=request.param == "async")
    yield made
    made.close()


def test_to_the_end(world: World) -> None:
    """ITER-6: all items, and no state is left."""
    world.run(8)
    assert world.log == ["on_start", *range(8), "closed", "on_stop", "on_complete"]
    assert world.redis.keys("*") == []


def test_a_stop_and_another_start(world: World) -> None:
    """ITER-1, ITER-2, ITER-3, ITER-5, ITER-8: the fields of Sidekiq, and our own."""
    world.at[6] = world.stop
    with pytest.raises(Interrupted):
        world.run()
    assert world.log == ["on_start", *range(7), "closed", "on_stop"]
    saved = {"ex": "1", "c": "7", "rt": "7.0", "jw_done": "7", "jw_total": "20"}
    assert world.state() == saved
    assert STATE_TTL_S - 100 < world.redis.ttl(KEY) <= STATE_TTL_S

    world.stopping, world.at = False, {}
    world.at[9] = world.stop
    with pytest.raises(Interrupted):
        world.run()
    assert world.log == ["on_resume", 7, 8, 9, "closed", "on_stop"]
    assert world.state() == saved | {"ex": "2", "c": "10", "rt": "10.0", "jw_done": "10"}
    assert (world.cursors[1].executions, world.cursors[1].runtime) == (2, 7.0)

    world.stopping = False
    world.run()
    assert world.items == list(range(10, 20))
    assert world.redis.keys("*") == []


def test_every_five_seconds(world: World) -> None:
    """ITER-3: at the first boundary after 5 s; `rt` is the run time of earlier starts."""
    seen: dict[int, str | None] = {}

    def look() -> None:
        seen[world.items[-1]] = world.state().get("c")

    world.at = dict.fromkeys(range(14), look)
    world.run(14)
    assert seen == {item: None if item < 5 else "5" if item < 10 else "10" for item in range(14)}


def test_what_a_periodic_save_has(world: World) -> None:
    """ITER-1, ITER-2: the whole state, with its expiry, each time."""
    found: list[Any] = []
    world.at[5] = lambda: found.append((world.state(), world.redis.ttl(KEY)))
    world.run(8)
    ((state, ttl),) = found
    assert state == {"ex": "1", "c": "5", "rt": "0", "jw_done": "5", "jw_total": "8"}
    assert STATE_TTL_S - 100 < ttl <= STATE_TTL_S


def test_a_run_that_is_long_enough_gives_way(world: World) -> None:
    """ITER-11: at the first boundary after the limit."""
    world.max_runtime = 3
    with pytest.raises(Interrupted):
        world.run()
    assert world.items == [0, 1, 2, 3]
    with pytest.raises(Interrupted):
        world.run()
    assert world.items == [4, 5, 6, 7]


def test_a_jobs_own_limit_comes_first(server: Server) -> None:
    """ITER-11: before the limit of the worker."""
    world = World(server, max_runtime=1)
    world.max_runtime = 3
    with pytest.raises(Interrupted):
        world.run()
    assert world.items == [0, 1]
    world.close()


def boom() -> None:
    raise LookupError("boom")


def test_a_failure_keeps_what_was_done(world: World) -> None:
    """ITER-10: the next try begins with the item that failed."""
    world.at[3] = boom
    with pytest.raises(LookupError, match="boom"):
        world.run(6)
    assert world.log == ["on_start", 0, 1, 2, 3, "closed"]
    assert world.state() == {"ex": "1", "c": "3", "rt": "4.0", "jw_done": "3", "jw_total": "6"}
    world.at = {}
    world.run(6)
    assert world.items == [3, 4, 5]


def test_a_failing_callback_is_a_failure(world: World) -> None:
    """ITER-10: and the item at which the cursor is runs again."""

    def broken(cursor: Cursor, count: int) -> None:
        boom()

    sound = world.spec.callbacks["on_complete"]
    callbacks: Any = world.spec.callbacks
    callbacks["on_complete"] = broken
    with pytest.raises(LookupError):
        world.run(3)
    assert world.state()["c"] == "2"
    callbacks["on_complete"] = sound
    world.run(3)
    assert world.log == ["on_resume", 2, "closed", "on_stop", "on_complete"]


def test_a_hard_stop_saves_nothing(world: World) -> None:
    """SIG-5: the job was put back and may run elsewhere; only the generator is closed."""

    def interrupt() -> None:
        raise Shutdown

    world.at[2] = interrupt
    with pytest.raises(Shutdown):
        world.run()
    assert world.log == ["on_start", 0, 1, 2, "closed"]
    assert world.redis.keys("*") == []


def test_cancelled_while_it_runs(world: World) -> None:
    """ITER-7: the next save reads the cancellation; the job ends as done."""
    answers: list[Cancellation] = []
    world.at[2] = lambda: answers.append(world.shell.run(cancel(KEYS, JID, now=1_786_960_000.9)))
    world.run()
    assert world.log == [
        *("on_start", 0, 1, 2, 3, 4, "closed"),
        *("on_cancel", "on_stop", "on_complete"),
    ]
    assert answers == [Cancellation(1_786_960_000, False)]  # no state is saved yet
    assert world.cursors[0].cancelled
    assert world.redis.keys("*") == []


def test_cancelled_before_it_starts(world: World) -> None:
    """ITER-7, ITER-9: no item is done; any reader can decode the state."""
    assert world.shell.run(cancel(KEYS, JID, now=1_786_960_000)).at == 1_786_960_000
    assert world.shell.run(cancel(KEYS, JID, now=1_786_960_009)).at == 1_786_960_000
    assert world.state() == {"c": "null", "cancelled": "1786960000"}
    assert STATE_TTL_S - 100 < world.redis.ttl(KEY) <= STATE_TTL_S
    world.run()
    assert world.log == ["on_start", "on_cancel", "on_stop", "on_complete"]
    assert world.redis.keys("*") == []


def test_cancelled_by_sidekiq_before_it_starts(world: World) -> None:
    """ITER-12: a state without a cursor, which means the beginning."""
    world.redis.hset(KEY, "cancelled", "1786960000")
    world.run()
    assert world.items == []


def test_cancelling_keeps_the_cursor(world: World) -> None:
    """ITER-9: `c` is written only if it is missing."""
    world.redis.hset(KEY, "c", "7")
    world.shell.run(cancel(KEYS, JID, now=1))
    assert world.state()["c"] == "7"


def test_a_state_of_sidekiqs(world: World) -> None:
    """ITER-5: continues at the item of the cursor. ITER-8: without our fields."""
    world.redis.hset(KEY, mapping={"ex": "3", "c": "17", "rt": "6.510907754000073"})
    world.run()
    assert world.log[:2] == ["on_resume", 17]
    assert world.items == [17, 18, 19]
    assert (world.cursors[0].executions, world.cursors[0].runtime) == (4, 6.510907754000073)


def test_a_cursor_that_is_no_json(world: World) -> None:
    """ITER-1: the job fails with advice; it does not start again from the beginning."""
    world.redis.hset(KEY, mapping={"ex": "3", "c": "{oops"})
    with pytest.raises(UnreadableState, match=r"'\{oops', which is not JSON .* delete the state"):
        world.run()
    assert world.state() == {"ex": "3", "c": "{oops"}


def test_the_state_may_go_with_the_outcome(world: World) -> None:
    """ITER-6: for a worker that stores both in one step."""
    commands: list[Command] = []
    world.run(8, on_finish=commands.append)
    assert world.state()["c"] == "5"
    (last,) = commands
    assert world.shell.run(once(last)) == 1
    assert world.redis.keys("*") == []


def test_a_job_without_an_id(world: World) -> None:
    """ITER-1: the job has no state, so it is not interrupted."""
    world.stopping = True
    world.run(8, jid=None)
    assert world.items == list(range(8))
    assert world.redis.keys("*") == []


def test_redis_away_while_it_runs(
    world: World, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """ITER-3: the job does not leave the worker unsaved; a stop waits until the state is saved."""
    world.at[1] = server.stop
    world.at[7] = world.stop
    world.at[11] = server.start
    with pytest.raises(Interrupted):
        world.run()
    assert world.items == list(range(12))
    assert world.state()["c"] == "12"
    assert "cannot save the state of the iteration, so the job goes on" in caplog.text
    assert len(caplog.records) <= 8  # at 5 s, then each second from 8 s on


def test_a_stop_that_cannot_be_saved_is_not_tried_at_each_item(
    world: World, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """ITER-3: one attempt each second, because each may take as long as the timeout."""
    world.pace = 0.125
    world.at[1] = server.stop
    world.at[3] = world.stop
    with pytest.raises(RedisUnreachable):  # the state cannot be deleted
        world.run(20)
    assert world.items == list(range(20))
    assert len([each for each in caplog.records if "goes on" in each.message]) == 3


def test_a_hard_stop_between_two_items(world: World) -> None:
    """SIG-5: the generator is closed at once, not when the error is collected."""

    def interrupt() -> bool:
        raise Shutdown

    class Stopping:
        def __bool__(self) -> bool:
            return interrupt() if world.items[-1:] == [2] else False

    world.stopping = Stopping()  # type: ignore[assignment]
    with pytest.raises(Shutdown) as caught:
        world.run()
    assert world.log == ["on_start", 0, 1, 2, "closed"]
    assert caught.value is not None


def test_a_state_that_is_no_hash(world: World) -> None:
    """ITER-1: an ordinary failure, before any item is done."""
    world.redis.set(KEY, "x")
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        world.run()
    assert world.items == []


class Cutting(SyncRedis):
    """Loses the connection at the n-th operation, before or after the server carries it out."""

    def __init__(self, url: str, at: int, *, done: bool) -> None:
        super().__init__(url)
        self.left = at
        self.done = done

    def run(self, op: Op[Any]) -> Any:
        self.left -= 1
        if self.left == 0:
            if self.done:
                super().run(op)
            raise NoReply("cut")
        return super().run(op)


@pytest.mark.parametrize("done", [False, True], ids=["unsent", "unanswered"])
@pytest.mark.parametrize("at", range(1, 8))
def test_a_cut_at_any_operation(server: Server, at: int, done: bool) -> None:
    """ITER-3, ITER-5, ITER-6: no item is left out, at most one runs twice, no state is left."""
    world = World(server)
    world.shell.close()
    world.shell = Cutting(server.url, at, done=done)
    world.at[7] = world.stop
    seen: list[int] = []
    for _ in range(4):  # as retries do
        try:
            world.run(13)
        except (NoReply, Interrupted):
            seen += world.items
            world.stopping, world.at = False, {}
        else:
            seen += world.items
            break
    assert set(seen) == set(range(13))
    assert len(seen) - 13 <= 1
    assert world.redis.keys("*") == []
    world.close()


class Crash(BaseException):
    """The process ends here."""


def crash() -> None:
    raise Crash


@pytest.mark.parametrize("seed", range(12))
def test_any_history(server: Server, seed: int) -> None:
    """ITER-3, ITER-5, ITER-10: items run in order, and none is left out, in any history.

    After a stop no item runs twice, after a failure one, after a crash at most 5 s of them.
    """
    jitter = random.Random(seed)
    world = World(server, is_async=bool(seed % 2))
    count = 30
    done = 0  # items before this one are done
    slack = 0  # number of done items that may run again
    for _ in range(100):
        fate, at = jitter.choice([world.stop, boom, crash]), jitter.randrange(done, count + 6)
        world.stopping, world.at = False, {at: fate}
        ended: BaseException | None = None
        try:
            world.run(count)
        except (Interrupted, LookupError, Crash) as error:
            ended = error
        first = world.items[0] if world.items else done
        assert done - slack <= first <= done
        assert world.items == list(range(first, first + len(world.items)))
        done = max(done, first + len(world.items) - isinstance(ended, LookupError | Crash))
        slack = 5 if isinstance(ended, Crash) else 0
        if ended is None:
            break
    assert done == count
    assert world.redis.keys("*") == []
    world.close()


def test_around_each_item(server: Server) -> None:
    """The context is entered for each item, not for the code before the first item."""
    log: list[Any] = []

    @contextmanager
    def around(cursor: Cursor, count: int) -> Iterator[None]:
        log.append(("in", cursor.value))
        yield
        log.append("out")

    made = World(server, around_iteration=around)
    made.at = {0: lambda: log.append(0), 1: lambda: log.append(1)}
    made.run(2)
    assert log == [("in", 0), 0, "out", ("in", 1), 1, "out"]
    made.close()


@pytest.mark.parametrize("manager", ["sync", "async"])
def test_around_each_item_of_an_async_job(server: Server, manager: str) -> None:
    """Both kinds of context managers."""
    log: list[Any] = []

    @contextmanager
    def around(cursor: Cursor, count: int) -> Iterator[None]:
        log.append("in")
        yield

    @asynccontextmanager
    async def aaround(cursor: Cursor, count: int) -> AsyncIterator[None]:
        log.append("in")
        yield

    made = World(server, is_async=True, around_iteration=around if manager == "sync" else aaround)
    made.at = {0: lambda: log.append(0), 1: lambda: log.append(1)}
    made.run(2)
    assert log == ["in", 0, "in", 1]
    made.close()


def test_states_of_all_shapes(server: Server) -> None:
    """ITER-1, ITER-8: a state that is written and read is unchanged."""
    shell = SyncRedis(server.url)
    cursor = '{"page":11,"clé":["é",null,1.5],"id":18446744073709551627}'.encode()
    written = State(2, cursor, 5.5, None, 3, 9)
    assert shell.run(save(KEYS, JID, written)) is None
    assert shell.run(load(KEYS, JID)) == written
    shell.run(cancel(KEYS, JID, now=5))
    assert shell.run(save(KEYS, JID, written)) == 5
    assert shell.run(load(KEYS, "other")) == State()
    shell.close()
