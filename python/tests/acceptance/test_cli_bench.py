"""`jobwire bench` from the view of a user: its output, and the state it leaves.

These tests judge no figure, because the speed of a machine is not a property of the code.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire.bench.result import limit_of, percentile
from tests.workers import environment, jobwire

NAMES = [
    *("enqueue", "enqueue_async", "enqueue_bulk", "drain", "drain_processes", "lone"),
    *("scheduled", "failing", "waiting", "waiting_async"),
]
SMALL = ("--quick", "--jobs", "50", "-c", "4")


def begun(server: Server, *arguments: str, pipe: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """Return a bench that has started."""
    return subprocess.Popen(
        [sys.executable, "-m", "jobwire", "bench", "--redis", server.url, *SMALL, *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


def nothing_is_left(client: Any) -> None:
    """Fail unless only the key of the test is left, and all workers have disconnected."""
    assert client.keys("*") == [b"jobwire-bench"]
    wait_until(lambda: len(client.client_list()) == 1, what="the workers to disconnect")


def test_it_reports_every_run_and_leaves_nothing(server: Server) -> None:
    """A foreign key stays, although its name is like ours."""
    client = server.client()
    client.set("jobwire-bench", "not the bench's")
    done = subprocess.run(
        [*(sys.executable, "-m", "jobwire", "bench"), *SMALL, "--processes", "2", "--json"],
        env=environment(JOBWIRE_REDIS_URL=server.url),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,  # the bench starts a dozen processes
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["plan"]["jobs"] == 50
    assert report["surroundings"]["other_clients"] == 1
    assert report["surroundings"]["round_trip_ms"] > 0
    results = {result["name"]: result for result in report["results"]}
    assert list(results) == NAMES
    for name, result in results.items():
        assert result["jobs"] == (20 if name == "lone" else 50)
        assert result["seconds"] > 0
        assert result["limit"]
        if name != "lone":
            assert result["rate"] > 0
            assert result["client_cpu"] >= 0
            assert result["server_cpu"] >= 0
    assert results["enqueue"]["round_trips_per_job"] == pytest.approx(1, abs=0.1)
    assert results["enqueue_bulk"]["round_trips_per_job"] <= 0.1
    assert 0 < results["lone"]["p50_ms"] <= results["lone"]["p99_ms"]
    nothing_is_left(client)


@pytest.mark.matrix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["jobs are enqueued", "a worker runs"])
def test_an_interrupted_one_leaves_nothing(
    server: Server, number: signal.Signals, moment: str
) -> None:
    """Neither keys nor processes stay."""
    client = server.client()
    client.set("jobwire-bench", "not the bench's")
    jobs = 10_000_000 if moment == "jobs are enqueued" else 50
    process = begun(server, "--jobs", str(jobs), pipe=subprocess.PIPE)
    try:
        pattern = "*:queue:default" if moment == "jobs are enqueued" else "*:processes"
        wait_until(lambda: client.keys(pattern), timeout=60, what=moment)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err.strip()) == (128 + number, "", "")
    nothing_is_left(client)


@pytest.mark.matrix
def test_who_cannot_wait_interrupts_in_vain(server: Server) -> None:
    """One Ctrl-C after the other does not prevent the cleanup."""
    client = server.client()
    client.set("jobwire-bench", "not the bench's")
    process = begun(server)
    try:
        wait_until(lambda: client.keys("*:processes"), timeout=60, what="a worker to run")

        def ended() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        wait_until(ended, timeout=60, what="the end")
    finally:
        process.kill()
        process.wait()
    nothing_is_left(client)


@pytest.mark.matrix
def test_workers_end_with_a_bench_that_is_killed(server: Server) -> None:
    """A killed bench cannot remove its keys, but its workers stop adding to them."""
    client = server.client()
    process = begun(server)
    try:
        wait_until(lambda: client.keys("*:processes"), timeout=60, what="a worker to run")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: len(client.client_list()) == 1, what="the workers to disconnect")


def test_a_server_that_is_not_there_is_one_line(server: Server) -> None:
    server.stop()
    done = jobwire("bench", *SMALL, "--redis", server.url)
    assert done.returncode == 4
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "start the server" in done.stderr


def test_who_may_not_remove_keys_may_not_begin(server: Server) -> None:
    client = server.client()
    client.execute_command("ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", "-scan")
    url = server.url.replace("redis://", "redis://limited:secret@")
    done = jobwire("bench", *SMALL, "--redis", url)
    assert done.returncode == 4
    assert "scan" in done.stderr
    assert client.dbsize() == 0


@pytest.mark.matrix
def test_what_a_lost_server_keeps_is_said(server: Server) -> None:
    """The keys may exist again when the server is back; workers end."""
    client = server.client()
    process = begun(server, pipe=subprocess.PIPE)
    try:
        wait_until(lambda: client.keys("*:processes"), timeout=60, what="a worker to run")
        server.kill()
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 4
    assert "keys with the prefix jobwire-bench-" in err
    assert len(err.strip().splitlines()) == 2
    server.start()
    client = server.client()
    wait_until(lambda: len(client.client_list()) == 1, what="the last connection to close")


def test_wrong_usage_is_one_line() -> None:
    done = jobwire("bench", "--jobs", "0")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("used", "limit"),
    [
        ({"client_cpu": 0.3, "server_cpu": 0.95}, "the server's core"),
        ({"client_cpu": 0.95}, "Python's core"),
        ({"client_cpu": 0.95, "processes": 2}, "Python and server, alternately"),
        ({"client_cpu": 1.9, "processes": 2}, "Python's cores"),
        ({"waiting": 0.7}, "round trips"),
        ({"waiting": 0.7, "server_cpu": None, "load": 9.0}, "round trips"),
        ({"client_cpu": 1.1, "processes": 2, "server_cpu": 0.7}, "cores, if the server is here"),
        ({"load": 2.5}, "other work on this machine"),
        ({"load": 1.5}, "Python and server, alternately"),
    ],
)
def test_the_limit_is_what_is_used_up(used: dict[str, Any], limit: str) -> None:
    idle = {"client_cpu": 0.2, "processes": 1, "server_cpu": 0.1, "waiting": 0.1, "cores": 2}
    assert limit_of(**{**idle, **used}) == limit


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([3.0], 0.99) == 3


ROOT = Path(__file__).resolve().parents[3]


def test_every_benchmark_runs() -> None:
    """In a process of its own, because the plugin does not work with `-n`."""
    options = ("-q", "--benchmark-disable", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "benchmarks", *options],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    closing = done.stdout.strip().splitlines()[-1]
    assert "passed" in closing
    assert "skipped" not in closing
