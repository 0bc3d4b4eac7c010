"""The buffer of a client, with a Redis that a test switches off and on."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.servers import wait_until
from jobwire import BufferFull, ConfigError, MaybeWritten, PushBuffer, RedisRefused
from jobwire.application import push_buffer
from jobwire.application.held_jobs import HeldJobs
from jobwire.application.push_buffer import Keeper
from jobwire.application.spool import SpoolFile, left_in, new_file
from jobwire.errors import RedisTrouble, RedisUnreachable
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.unique import Refused
from jobwire.protocol.wire import Local, Op


def job(number: int, size: int = 1) -> ReadyPayload:
    return ReadyPayload(f"jid{number}", "default", None, b"x" * size)


class Switched:
    """Takes jobs while it is on. While it is off, each attempt raises `trouble`."""

    def __init__(self) -> None:
        self.on = True
        self.trouble: Callable[[], RedisTrouble] = lambda: RedisUnreachable("away")
        self.refused: set[str] = set()
        self.written: list[str] = []
        self.closed = self.attempts = 0

    def reach(self) -> None:
        self.attempts += 1
        if not self.on and isinstance(self.trouble(), RedisUnreachable):
            raise self.trouble()

    def send(self, jobs: Sequence[ReadyPayload]) -> None:
        if not self.on:
            raise self.trouble()
        if any(job.jid in self.refused for job in jobs):
            raise RedisRefused("WRONGTYPE a string is in the way")
        self.written += [job.jid for job in jobs]

    def operation(self, jobs: Sequence[ReadyPayload]) -> Op[Refused]:
        yield Local(lambda: self.send(jobs), _unused)
        return {}

    def close(self) -> None:
        self.closed += 1


async def _unused() -> None:
    raise AssertionError


@pytest.fixture
def redis() -> Switched:
    return Switched()


@pytest.fixture
def keep(redis: Switched) -> Iterator[Callable[..., Keeper]]:
    """Yield a function that makes a keeper with these settings; its thread ends with the test."""
    made: list[Keeper] = []

    def keeper(**settings: Any) -> Keeper:
        made.append(Keeper(PushBuffer(**settings), redis, lambda: 1000.0))
        return made[-1]

    yield keeper
    for each in made:
        each.end(0)


def push(keeper: Keeper, redis: Switched, *jobs: ReadyPayload) -> None:
    """Write jobs through a keeper, as the blocking shell does."""
    steps = keeper.write(jobs, redis.operation)
    try:
        step = next(steps)
        while True:
            assert isinstance(step, Local)
            try:
                reply = step.call()
            except Exception as error:  # noqa: BLE001 - the operation decides
                step = steps.throw(error)
            else:
                step = steps.send(reply)
    except StopIteration:
        pass


def all_written(keeper: Keeper) -> None:
    wait_until(lambda: not keeper.holds, what="the end of the buffer")


Keep = Callable[..., Keeper]


def test_a_buffer_is_not_used_while_redis_is_there(keep: Keep, redis: Switched) -> None:
    keeper = keep()
    push(keeper, redis, job(1))
    assert redis.written == ["jid1"]
    assert (keeper.pending().jobs, redis.closed) == (0, 0)


def test_jobs_are_written_in_order_when_redis_is_back(keep: Keep, redis: Switched) -> None:
    keeper = keep()
    redis.on = False
    for number in range(250):
        push(keeper, redis, job(number, size=10))
    now = keeper.pending()
    assert (now.jobs, now.bytes, now.since) == (250, 2500, 1000.0)
    redis.on = True
    for number in range(250, 300):
        push(keeper, redis, job(number))
    all_written(keeper)
    push(keeper, redis, job(300))
    assert redis.written == [f"jid{number}" for number in range(301)]
    wait_until(lambda: redis.closed, what="the end of the thread")


def test_a_push_without_room_raises_and_keeps_nothing(keep: Keep, redis: Switched) -> None:
    redis.on = False
    keeper = keep(max_jobs=3, max_bytes=100)
    push(keeper, redis, job(1), job(2))
    with pytest.raises(BufferFull, match="2 of 3 jobs") as caught:
        push(keeper, redis, job(3), job(4))
    assert not caught.value.written
    with pytest.raises(BufferFull, match="2 of 100 bytes"):
        push(keeper, redis, job(3, size=99))
    push(keeper, redis, job(5, size=98))
    redis.on = True
    all_written(keeper)
    assert redis.written == ["jid1", "jid2", "jid5"]


def test_what_may_have_been_written_is_not_written_again(
    keep: Keep, redis: Switched, caplog: pytest.LogCaptureFixture
) -> None:
    """PUSH-9: unless it is asked for; for a job of the buffer, only the log says so."""
    redis.on, redis.trouble = False, lambda: MaybeWritten("no reply")
    careful = keep()
    with pytest.raises(MaybeWritten):
        push(careful, redis, job(1))
    assert careful.pending().jobs == 0
    redis.trouble = lambda: RedisUnreachable("away")
    push(careful, redis, job(2))
    with caplog.at_level(logging.ERROR, "jobwire.client"):
        redis.trouble = lambda: MaybeWritten("no reply")
        wait_until(lambda: careful.pending().unsure, what="the attempt of the thread")
    assert "1 kept job may have been written, not pushed again: jid2" in caplog.text
    again = keep(resend_unsure=True)
    push(again, redis, job(3))
    redis.on = True
    all_written(again)
    assert redis.written == ["jid3"]


def test_a_refusal_for_good_raises(keep: Keep, redis: Switched) -> None:
    redis.refused = {"jid1"}
    keeper = keep()
    with pytest.raises(RedisRefused):
        push(keeper, redis, job(1))
    assert keeper.pending().jobs == 0


@pytest.mark.parametrize("code", ["LOADING", "OOM", "READONLY", "MISCONF"])
def test_a_refusal_for_now_is_as_good_as_an_absence(keep: Keep, redis: Switched, code: str) -> None:
    redis.on, redis.trouble = False, lambda: RedisRefused(f"{code} not now")
    keeper = keep()
    push(keeper, redis, job(1))
    redis.on = True
    all_written(keeper)
    assert redis.written == ["jid1"]


def test_a_login_that_is_refused_is_no_absence(keep: Keep, redis: Switched) -> None:
    def refusal() -> RedisTrouble:
        error = RedisUnreachable("WRONGPASS")
        error.login_refused = error.refused = True
        return error

    redis.on, redis.trouble = False, refusal
    with pytest.raises(RedisUnreachable):
        push(keep(), redis, job(1))


def test_a_kept_job_that_is_refused_holds_up_no_other(
    keep: Keep, redis: Switched, caplog: pytest.LogCaptureFixture
) -> None:
    redis.on, redis.refused = False, {"jid1"}
    keeper = keep()
    push(keeper, redis, job(0), job(1), job(2))
    redis.on = True
    all_written(keeper)
    assert redis.written == ["jid0", "jid2"]
    assert keeper.pending().refused == 1
    assert "1 kept job refused, not pushed again: jid1" in caplog.text


def test_a_bulk_push_that_ends_in_the_middle(keep: Keep, redis: Switched) -> None:
    def middle() -> RedisTrouble:
        error = RedisUnreachable("away")
        error.written = ("jid0",)
        return error

    redis.on, redis.trouble = False, middle
    keeper = keep(max_jobs=2)
    push(keeper, redis, job(0), job(1), job(2))
    redis.trouble = lambda: RedisUnreachable("away")
    with pytest.raises(BufferFull):
        push(keeper, redis, job(3))
    redis.on = True
    all_written(keeper)
    assert redis.written == ["jid1", "jid2"]


def test_the_jobs_before_an_overflow_are_named(keep: Keep, redis: Switched) -> None:
    def middle() -> RedisTrouble:
        error = RedisUnreachable("away")
        error.written = ("jid0",)
        return error

    redis.on, redis.trouble = False, middle
    with pytest.raises(BufferFull) as caught:
        push(keep(max_jobs=1), redis, job(0), job(1), job(2))
    assert caught.value.written == ("jid0",)


def test_an_end_waits_and_what_is_left_is_tried_again(keep: Keep, redis: Switched) -> None:
    redis.on = False
    keeper = keep()
    push(keeper, redis, job(1))
    keeper.end(0.05)
    assert keeper.pending().jobs == 1
    redis.on = True
    keeper.end(60)
    assert redis.written == ["jid1"]


def test_a_thread_that_cannot_start_leaves_the_jobs_to_the_end(
    keep: Keep, redis: Switched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12 starts no thread when the process ends."""

    def start(_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr("threading.Thread.start", start)
    redis.on = False
    keeper = keep()
    push(keeper, redis, job(1))
    redis.on = True
    keeper.end_process()
    assert redis.written == ["jid1"]


def test_the_end_of_the_process_says_what_is_lost(
    keep: Keep,
    redis: Switched,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(push_buffer, "EXIT_S", 0.01)
    redis.on = False
    keeper = keep()
    push(keeper, redis, job(1), job(2))
    keeper.end_process()
    assert "Redis is away at the end of the process: 2 jobs lost" in caplog.text
    spooling = keep(spool=tmp_path)
    push(spooling, redis, job(3))
    spooling.end_process()
    assert f"1 job left in the spool {tmp_path}" in caplog.text


def test_settings_that_are_wrong(tmp_path: Path) -> None:
    for wrong in ({"max_jobs": 0}, {"max_bytes": 1.5}, {"max_jobs": True}, {"spool": 3}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            PushBuffer(**wrong)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ConfigError, match="spool"):
        Keeper(PushBuffer(spool=file), Switched())


# -- the spool


def killed(file: SpoolFile) -> None:
    """Let go of a file as the end of its process does."""
    file.close()


def left(directory: Path) -> list[tuple[list[str], int]]:
    """Return the ids and the number of unsure jobs of each file."""
    found = []
    for file, jobs, unsure in left_in(directory, sync=False):
        found.append(([job.jid for job, _ in jobs], unsure))
        file.close()
    return found


def test_no_job_is_unsure_while_redis_is_away(keep: Keep, redis: Switched, tmp_path: Path) -> None:
    redis.on = False
    keeper = keep(spool=tmp_path)
    push(keeper, redis, job(1), job(2))
    wait_until(lambda: redis.attempts >= 2, what="two attempts")
    keeper.begin_again()  # lets go of the file
    assert left(tmp_path) == [(["jid1", "jid2"], 0)]
    [file] = tmp_path.iterdir()
    assert b"sending" not in file.read_bytes()


def test_a_spool_is_read_by_the_next_process(keep: Keep, redis: Switched, tmp_path: Path) -> None:
    redis.on = False
    first = keep(spool=tmp_path)
    push(first, redis, job(1), job(2))
    first.end(0)
    assert left(tmp_path) == []  # the process lives
    first.begin_again()  # lets go of it
    later = keep(spool=tmp_path, max_jobs=1)
    assert later.pending().jobs == 2
    push(later, redis, job(3))  # the jobs of others take no room
    redis.on = True
    all_written(later)
    assert redis.written == ["jid1", "jid2", "jid3"]
    assert [*tmp_path.iterdir()] == []


def test_a_killed_process_leaves_its_attempt_unsure(
    keep: Keep, redis: Switched, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """PUSH-9."""
    for _ in range(2):
        file = new_file(tmp_path, sync=True)
        file.add([job(number) for number in range(4)], since=1.0)
        file.sending(3)
        file.done(1)
        file.sending(2)
        killed(file)
        redis.written.clear()
        asked = bool(caplog.text)
        keeper = keep(spool=tmp_path, resend_unsure=asked)
        all_written(keeper)
        assert redis.written == (["jid1", "jid2", "jid3"] if asked else ["jid3"])
        assert keeper.pending().unsure == (0 if asked else 2)
        assert "2 kept jobs may have been written, not pushed again: jid1, jid2" in caplog.text


def test_a_line_that_was_being_written_is_dropped(tmp_path: Path) -> None:
    file = new_file(tmp_path, sync=False)
    file.add([job(1), job(2)], since=1.0)
    killed(file)
    whole = file.path.read_bytes()
    for end in range(whole.index(b"\n") + 1, len(whole)):
        file.path.write_bytes(whole[:end])
        assert left(tmp_path) == [(["jid1"], 0)]
    assert [path.suffix for path in tmp_path.iterdir()] == [".jobs"]


def test_a_line_that_is_broken_costs_nothing_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = new_file(tmp_path, sync=False)
    file.add([job(1), job(2), job(3)], since=1.0)
    killed(file)
    lines = file.path.read_bytes().splitlines(keepends=True)
    rest = b"\0" * 20 + b"\n" + lines[2]
    file.path.write_bytes(lines[0] + rest)
    assert left(tmp_path) == [(["jid1"], 0)]
    broken = file.path.with_suffix(".broken")
    assert broken.read_bytes() == rest
    assert str(broken) in caplog.text


def test_a_disk_that_is_full_refuses_the_push(
    keep: Keep, redis: Switched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    redis.on = False
    keeper = keep(spool=tmp_path)
    push(keeper, redis, job(1))
    write = os.write

    def half(descriptor: int, text: bytes) -> int:
        """Write a part first, then fail, as a full disk does."""
        if len(text) > 10:
            return write(descriptor, text[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jobwire.application.spool.os.write", half)
    with pytest.raises(BufferFull, match="No space left"):
        push(keeper, redis, job(2))
    monkeypatch.undo()
    push(keeper, redis, job(3))
    keeper.end(0)
    keeper.begin_again()
    ((jids, _),) = left(tmp_path)
    assert jids == ["jid1", "jid3"]


def test_payloads_are_kept_byte_for_byte(tmp_path: Path) -> None:
    text = json.dumps({"args": ["\u2028\n\\ \x7f ü"]}, ensure_ascii=False).encode()
    file = new_file(tmp_path, sync=False)
    file.add([ReadyPayload("a" * 24, "default", 1.5, text)], since=2.0)
    killed(file)
    ((taken, jobs, _),) = left_in(tmp_path, sync=False)
    assert jobs == [(ReadyPayload("a" * 24, "default", 1.5, text), 2.0)]
    taken.close()


@given(st.lists(st.integers(1, 3), max_size=30), st.integers(0, 10_000))
def test_a_process_killed_at_any_byte_loses_no_finished_push(
    steps: Sequence[int], cut: int
) -> None:
    """Each job with a whole line is left, or was being sent, or is done."""
    import tempfile  # a fixture would be shared by all examples

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        file = new_file(directory, sync=False)
        number = done = sending = 0
        ends: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)]
        for step in steps:
            if step == 1:
                file.add([job(number)], since=0.0)
                number += 1
            elif step == 2 and done < number and not sending:
                sending = min(2, number - done)
                file.sending(sending)
            elif step == 3 and sending:
                file.done(sending)
                done, sending = done + sending, 0
            ends.append((file.path.stat().st_size, number, done, sending))
        killed(file)
        size = cut % (ends[-1][0] + 1)
        file.path.write_bytes(file.path.read_bytes()[:size])
        _, number, done, sending = max(entry for entry in ends if entry[0] <= size)
        assert left(directory) == [([f"jid{at}" for at in range(done, number)], sending)]


def test_the_first_jobs_are_of_one_place_and_size() -> None:
    held: HeldJobs[str] = HeldJobs(100, 10_000)
    held.add([job(0, 50), job(1, 60), job(2, 1)], since=1.0, source="a")
    held.add([job(3)], since=2.0, source="b")
    jobs, source = held.first(10, 100)
    assert ([each.jid for each in jobs], source) == (["jid0"], "a")
    held.drop(1)
    jobs, _ = held.first(10, 1)  # one is always taken
    assert [each.jid for each in jobs] == ["jid1"]
    jobs, _ = held.first(10, 100)
    assert [each.jid for each in jobs] == ["jid1", "jid2"]
    held.drop(2)
    assert (held.source, held.since, held.bytes) == ("b", 2.0, 1)
