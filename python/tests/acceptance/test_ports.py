"""The ports of `jobwire worker` and `jobwire exporter`, over real HTTP."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from harness.servers import Reaper, Server, wait_until
from jobwire import Client
from tests.apps import recording
from tests.fleet import Fleet
from tests.workers import Workers, environment, free_port, jobwire

APP = "tests.apps.recording:app"


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body; 0 if nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return reply.status, reply.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def total(port: int, name: str, path: str = "/metrics", **labels: str) -> float:
    """Return the sum of the samples of a name with these labels."""
    status, text = get(port, path)
    assert status == 200, text
    return sum(
        sample.value
        for family in parse(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def ready(port: int) -> None:
    wait_until(lambda: get(port, "/ready")[0] == 200, 60, f"readiness: {get(port, '/ready')}")


def test_one_worker_on_one_port(server: Server, workers: Workers, client: Client) -> None:
    """Probes and numbers are right, also while all slots are busy and while it is quiet."""
    port = free_port()
    ports = ("--health-port", str(port), "--metrics-port", str(port))
    worker = workers.start(APP, "--redis", server.url, "-c", "2", *ports)
    ready(port)
    assert get(port, "/live") == (200, "ok\n")
    client.push_bulk("Note", [[n] for n in range(20)])
    client.push("Fail", ["x"])
    executions = "jobwire_worker_executions_total"
    wait_until(lambda: total(port, executions) == 21)
    assert total(port, executions, **{"class": "Fail"}) == 1
    assert total(port, "jobwire_worker_failures_total") == 1
    assert total(port, "jobwire_worker_execution_seconds_count") == 20
    assert 0 < total(port, "jobwire_worker_execution_seconds_sum") < 20
    assert total(port, "jobwire_worker_fetches_total") > 0
    assert total(port, "jobwire_worker_concurrency") == 2
    assert total(port, "jobwire_worker_processes") == 1
    assert total(port, "jobwire_worker_memory_bytes") > 1e7
    wait_until(lambda: total(port, "jobwire_jobs_processed_total", "/metrics/fleet") == 21)
    client.push_bulk("Hold", [[n] for n in range(5)])
    wait_until(lambda: total(port, "jobwire_worker_executing") == 2)
    assert get(port, "/live")[0] == get(port, "/ready")[0] == 200
    wait_until(lambda: json.loads(get(port, "/queues/default")[1])["size"] == 3)
    worker.send(signal.SIGTSTP)
    wait_until(lambda: get(port, "/ready") == (503, "quiet\n"))
    assert get(port, "/live")[0] == 200
    worker.send(signal.SIGTERM)
    wait_until(lambda: get(port, "/ready") == (503, "stopping\n"))
    server.client().set(recording.RELEASE, 1)
    assert worker.wait() == 0
    assert get(port, "/live")[0] == 0


def test_two_ports_and_wrong_requests(server: Server, workers: Workers) -> None:
    health, metrics = free_port(), free_port()
    workers.start(
        *(APP, "--redis", server.url),
        *("--health-port", str(health), "--metrics-port", str(metrics)),
    )
    ready(health)
    assert get(health, "/metrics") == (404, "not found; paths: /live /queues /ready\n")
    assert get(metrics, "/live")[0] == 404
    assert get(metrics, "/metrics")[0] == get(metrics, "/metrics?name=x")[0] == 200
    assert get(metrics, "/metricsx")[0] == get(metrics, "/")[0] == 404
    with socket.create_connection(("127.0.0.1", health)) as connection:
        connection.sendall(b"POST /live HTTP/1.0\r\n\r\n")
        assert b" 501 " in connection.recv(100)
    with socket.create_connection(("127.0.0.1", health)) as connection:
        connection.sendall(b"HEAD /live HTTP/1.0\r\n\r\n")
        reply = b""
        while chunk := connection.recv(1000):
            reply += chunk
        assert b" 200 " in reply
        assert reply.endswith(b"\r\n\r\n")
    idle = [socket.create_connection(("127.0.0.1", health)) for _ in range(40)]
    for connection in idle[:20]:
        connection.close()
    wait_until(lambda: get(health, "/live")[0] == 200)
    for connection in idle[20:]:
        connection.close()


def test_a_worker_that_waits_for_redis_is_alive_and_not_ready(
    server: Server, workers: Workers
) -> None:
    port = free_port()
    workers.start(APP, "--redis", "redis://127.0.0.1:1/0", "--health-port", str(port))
    wait_until(lambda: get(port, "/live")[0] == 200, 60)
    assert get(port, "/ready") == (503, "starting\n")
    status, body = get(port, "/queues/default")
    assert status == 503
    assert "127.0.0.1:1" in json.loads(body)["error"]


def test_a_port_that_is_taken_ends_the_start(server: Server, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for count in ("1", "2"):
            done = jobwire("worker", APP, "--health-port", port, "-p", count, cwd=tmp_path)
            assert done.returncode == 2, done.stderr
            assert f"health_port: cannot listen on 127.0.0.1 port {port}: " in done.stderr
            assert "Traceback" not in done.stderr


def test_without_the_library_the_error_names_the_extra(tmp_path: Path) -> None:
    (tmp_path / "prometheus_client.py").write_text("raise ModuleNotFoundError('no')\n")
    path = f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"
    for command in (("worker", APP, "--metrics-port", str(free_port())), ("exporter",)):
        done = jobwire(*command, cwd=tmp_path, PYTHONPATH=path)
        assert done.returncode == 2, done.stderr
        assert "needs prometheus-client: pip install 'jobwire[prometheus]'" in done.stderr


@pytest.mark.full
def test_the_processes_are_summed(server: Server, fleet: Fleet, client: Client) -> None:
    """Nothing is counted twice or forgotten, through a rolling restart and the death of one."""
    port = free_port()
    ports = ("--health-port", str(port), "--metrics-port", str(port))
    fleet.start(APP, "--redis", server.url, "-p", "3", "-c", "1", *ports)
    wait_until(lambda: get(port, "/live")[0] == 200, 60)
    first = fleet.ready(3)
    ready(port)
    executions = "jobwire_worker_executions_total"
    held = [[n] for n in range(3)]  # one for each process
    client.push_bulk("Hold", held)
    wait_until(lambda: total(port, "jobwire_worker_executing") == 3)
    server.client().set(recording.RELEASE, 1)
    client.push_bulk("Note", [[n] for n in range(27)])
    client.push_bulk("Fail", [["x"]] * 6, retry=False)  # a retry would also count
    wait_until(lambda: total(port, executions) == 36)
    assert total(port, "jobwire_worker_failures_total") == 6
    assert total(port, "jobwire_worker_processes") == 3
    assert total(port, "jobwire_worker_concurrency") == 3
    assert total(port, "jobwire_jobs_processed_total", "/metrics/fleet") == 36
    fleet.send(signal.SIGUSR2)
    seen = [36.0]
    deadline = time.monotonic() + 60
    while len(fleet.logged("takes over from")) < 3 and time.monotonic() < deadline:
        seen.append(total(port, executions))
        assert get(port, "/ready")[0] == 200
    assert len(fleet.logged("takes over from")) == 3
    assert seen == [36.0] * len(seen)
    wait_until(lambda: total(port, "jobwire_worker_processes") == 3, 60)
    assert not set(first) & set(fleet.booted()[3:])
    client.push_bulk("Note", [[n] for n in range(4)])
    wait_until(lambda: total(port, executions) == 40)
    os.kill(fleet.booted()[-1], signal.SIGKILL)
    wait_until(lambda: get(port, "/ready")[1].startswith("2 of 3 processes ready; starting"))
    assert total(port, executions) == 40
    ready(port)
    assert total(port, executions) == 40
    wait_until(lambda: json.loads(get(port, "/queues")[1])["enqueued"] == 0)
    fleet.send(signal.SIGTSTP)
    wait_until(lambda: get(port, "/ready") == (503, "quiet\n"))
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


def test_the_totals_are_those_of_the_ledger(server: Server, fleet: Fleet, client: Client) -> None:
    """C3 A7: four processes, two of which are killed at work. The jobs write the ledger."""
    port, jobs = free_port(), 400
    redis = server.client()

    def reached(count: int) -> bool:
        return int(redis.llen(recording.RAN)) >= count

    fleet.start(APP, "--redis", server.url, "-p", "4", "-c", "2", "--metrics-port", str(port))
    victims = [*fleet.ready(4)][:2]
    for start in range(0, jobs, 100):
        client.push_bulk("Note", [[n] for n in range(start, start + 100)])
        wait_until(partial(reached, start + 1), 60)
        if start and victims:
            os.kill(victims.pop(), signal.SIGKILL)
    client.push_bulk("Fail", [["x"]] * 20, retry=False)

    def ledger() -> set[int]:
        return {json.loads(line)[1][0] for line in redis.lrange(recording.RAN, 0, -1)}

    wait_until(lambda: ledger() == set(range(jobs)), 120, "every job in the ledger")
    processed = "jobwire_jobs_processed_total"
    wait_until(lambda: total(port, processed, "/metrics/fleet") >= jobs + 20, 120)
    # A job whose outcome a killed process did not store runs again, and counts once.
    assert total(port, processed, "/metrics/fleet") == jobs + 20
    assert total(port, "jobwire_jobs_failed_total", "/metrics/fleet") == 20
    assert int(redis.get("stat:processed")) == jobs + 20
    assert int(redis.get("stat:failed")) == 20
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


@pytest.mark.real_time
def test_a_process_that_hangs_is_not_live(server: Server, fleet: Fleet) -> None:
    """A stopped process sends no more messages."""
    port = free_port()
    fleet.start(APP, "--redis", server.url, "-p", "2", "--health-port", str(port))
    pid, _ = fleet.ready(2)
    ready(port)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: get(port, "/live")[0] == 503, 90)
        assert f"(pid {pid}): no message for 4" in get(port, "/live")[1]
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: get(port, "/live")[0] == 200)


def test_the_exporter(server: Server, client: Client, tmp_path: Path, reaper: Reaper) -> None:
    """It serves any Redis, and says so while that is away."""
    port = free_port()
    client.push("A", [1], queue="mail")
    command = (sys.executable, "-m", "jobwire", "exporter", "--redis", server.url)
    process = subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    reaper.watch(process.pid)
    try:
        wait_until(lambda: get(port, "/live")[0] == 200, 60)
        assert total(port, "jobwire_redis_up") == 1
        assert total(port, "jobwire_queue_jobs", queue="mail") == 1
        assert json.loads(get(port, "/queues/mail")[1])["size"] == 1
        server.close()
        wait_until(lambda: total(port, "jobwire_redis_up") == 0)
    finally:
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
        reaper.release(process.pid)
    assert process.returncode == 0
    assert log.startswith(f"jobwire exporter: http://127.0.0.1:{port}/metrics for ")
    assert len(log.splitlines()) == 1
