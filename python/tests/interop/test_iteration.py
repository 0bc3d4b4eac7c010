"""One iterable job in two languages: each side continues the interrupted job of the other."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire.application.iterabletype import define_iterable
from jobwire.connection.sync import SyncRedis
from jobwire.iterables import over_csv, over_sequence
from jobwire.protocol.iteration import Cursor, Interrupted, State, cancel, load, save
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import decode, encode
from jobwire.worker.execute.iterating import Iterations
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_threads
from tests.interop.sidekiq import RealSidekiq, items, results

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("iterable_jobs")]

KEYS = Keys()
ITEMS = 40


def run_in_python(
    client: redis.Redis, shell: SyncRedis, stopping: Callable[[], bool] = lambda: False
) -> str:
    """Take the only job of the queue, run it as `IterJob` of jobs.rb does, and return its jid.

    An interrupted job goes back, as a worker would put it.
    """
    text: Any = client.rpop("queue:default")
    job = decode(text, "default")
    jid = job.jid
    assert jid

    def iterate(cursor: Cursor, count: int, pause: float) -> Iterator[object]:
        for item, at in over_sequence(cursor, range(count)):
            yield at
            client.rpush(f"app:items:{jid}", item)

    spec, _ = define_iterable(iterate, {})
    try:
        Iterations(shell, KEYS, stopping=stopping).run(job, spec)
    except Interrupted:
        client.lpush("queue:default", text)
    return jid


def after(count: int) -> Callable[[], bool]:
    """Return a `stopping` that is true at the item of this number."""
    looks = itertools.count()
    return lambda: next(looks) >= count


def test_sidekiq_goes_on_after_python(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, shell: SyncRedis
) -> None:
    """ITER-1, ITER-5, ITER-8: no item is left out or runs twice; our fields do no harm."""
    driver.perform_async("IterJob", ITEMS, 0.0)
    jid = run_in_python(client, shell, after(7))
    assert items(client, jid) == list(range(7))
    assert client.hget(f"it-{jid}", "jw_total") == b"40"
    with sidekiq.worker(poll=None):
        wait_until(lambda: [each["jid"] for each in results(client)] == [jid], 40, "the end")
        wait_until(lambda: not client.exists(f"it-{jid}"), 60, "the end of its state")
    assert items(client, jid) == list(range(ITEMS))


def test_python_goes_on_after_sidekiq(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, shell: SyncRedis
) -> None:
    """ITER-1, ITER-5: with the state that Sidekiq wrote at its interruption."""
    jid = str(driver.perform_async("IterJob", ITEMS, 0.05))
    with sidekiq.worker(poll=None) as worker:
        wait_until(lambda: len(items(client, jid)) >= 3, 40, "the first items")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    first = len(items(client, jid))
    assert first < ITEMS
    state = shell.run(load(KEYS, jid))
    assert (state.executions, state.cursor, state.total) == (1, str(first).encode(), None)
    assert state.runtime > 0
    assert run_in_python(client, shell) == jid
    assert items(client, jid) == list(range(ITEMS))
    assert not client.exists(f"it-{jid}")


def test_back_and_forth(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, shell: SyncRedis
) -> None:
    """ITER-1, ITER-8: starts and time add up over both; Sidekiq leaves our fields in place."""
    jid = str(driver.perform_async("IterJob", ITEMS, 0.05))
    run_in_python(client, shell, after(4))
    with sidekiq.worker(poll=None) as worker:
        wait_until(lambda: len(items(client, jid)) >= 7, 40, "Sidekiq's items")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    state = shell.run(load(KEYS, jid))
    assert (state.executions, state.done, state.total) == (2, 4, ITEMS)
    run_in_python(client, shell, after(1))
    again = shell.run(load(KEYS, jid))
    assert (again.executions, again.runtime > state.runtime) == (3, True)
    assert again.done == len(items(client, jid))
    run_in_python(client, shell)
    assert items(client, jid) == list(range(ITEMS))


def test_workers_take_turns(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server, shell: SyncRedis
) -> None:
    """ITER-4, ITER-5: whole workers, each stopped during the job."""
    count = 120
    jid = str(driver.perform_async("IterJob", count, 0.02))

    def further() -> None:
        before = len(items(client, jid))
        wait_until(lambda: len(items(client, jid)) >= before + 5, 40, "five more items")

    for start in (1, 3):
        with worker_threads(server.url):
            further()
        assert shell.run(load(KEYS, jid)).executions == start
        assert [record.jid for record in driver.queue_list()] == [jid]
        with sidekiq.worker(poll=None) as worker:
            further()
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
        assert shell.run(load(KEYS, jid)).executions == start + 1
        assert [record.jid for record in driver.queue_list()] == [jid]
    with worker_threads(server.url):
        wait_until(lambda: len(results(client)) == 1, 60, "the end")
        wait_until(lambda: not client.exists(f"it-{jid}"), 60, "the end of its state")
    assert items(client, jid) == list(range(count))
    assert driver.set_size("retry") == 0


def test_python_cancels_before_the_start(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, shell: SyncRedis
) -> None:
    """ITER-9: 8.1.7 ends the job, but not after its own cancellation; 7.3.2 runs it."""
    jid = str(driver.perform_async("IterJob", 3, 0))
    shell.run(cancel(KEYS, jid, now=1_786_960_000))
    with sidekiq.worker(poll=None):
        wait_until(lambda: [each["jid"] for each in results(client)] == [jid], 40, "its end")
        wait_until(lambda: not client.exists(f"it-{jid}"), 60, "the end of its state")
    assert items(client, jid) == ([] if sidekiq.generation == 8 else [0, 1, 2])
    assert driver.set_size("retry") == 0


def test_sidekiq_cancels(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, shell: SyncRedis
) -> None:
    """ITER-7: before the start, when the state has no cursor, and after an interruption."""
    if sidekiq.generation == 7:
        pytest.skip("7.3.2 cannot cancel")
    for first in (0, 5):
        jid = str(driver.perform_async("IterJob", ITEMS, 0))
        if first:
            run_in_python(client, shell, after(first))
        driver.eval("Sidekiq::Client.new.cancel!(with)", jid)
        run_in_python(client, shell)
        assert items(client, jid) == list(range(first))
        assert not client.exists(f"it-{jid}")


def test_a_cursor_of_any_shape(driver: Driver, client: redis.Redis, shell: SyncRedis) -> None:
    """ITER-1: Ruby reads our state as it reads its own."""
    cursor = {"page": 11, "clé": ["é", None, 1.5], "id": 2**64 + 11}
    jid = "9f2c1b7a4d3e5f60718293a4"
    shell.run(save(KEYS, jid, State(1, encode(cursor))))
    read = "Sidekiq.redis { |c| JSON.parse(c.call('HGET', \"it-#{with}\", 'c')) }"
    assert driver.eval(read, jid) == cursor


def test_the_helpers_mean_what_sidekiqs_mean(driver: Driver, tmp_path: Path) -> None:
    """ITER-5: the index for sequences and rows of CSV; both continue with that item itself."""
    text = 'name,note\nAda,"two\nlines"\nGrace,x\nMary,y\n'
    path = tmp_path / "people.csv"
    path.write_text(text)
    ruby = "require 'csv'; IterJob.new.send(:csv_enumerator, CSV.new(with['text'], headers: true), "
    ruby += "cursor: with['at']).map { |row, at| [row.to_h, at] }.to_a"
    array = "IterJob.new.send(:array_enumerator, with['items'], cursor: with['at']).to_a"
    for at in (None, 0, 1, 2):
        cursor = Cursor(State(1, encode(at)))
        ours = [list(pair) for pair in over_csv(cursor, path)]
        assert driver.eval(ruby, {"text": text, "at": at}) == ours
        ours = [list(pair) for pair in over_sequence(cursor, "abc")]
        assert driver.eval(array, {"items": list("abc"), "at": at}) == ours


def test_a_run_that_is_aborted(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """ITER-15, SIG-5: 8.1.7 writes the state, 7.3.2 does not."""
    jid = str(driver.perform_async("IterJob", 5, 60))
    with sidekiq.worker(poll=None, timeout=1, concurrency=1) as worker:
        wait_until(lambda: items(client, jid), 60, "the first item")
        assert worker.stop() == 0
    assert client.llen("queue:default") == 1
    assert bool(client.exists(f"it-{jid}")) == (sidekiq.generation == 8)


def test_a_run_that_takes_long_yields(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """ITER-11: from 8.0.8 on, if it is configured."""
    if sidekiq.generation == 7:
        pytest.skip("7.3 has no such setting")
    jid = str(driver.perform_async("IterJob", 600, 0.05))
    with sidekiq.worker(poll=None, env={"MAX_ITERATION_RUNTIME": "1"}):
        wait_until(lambda: int(client.hget(f"it-{jid}", "ex") or 0) >= 2, 60, "two runs")
