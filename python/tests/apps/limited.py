"""Jobs that use what locks, and go on for longer than their time limits."""

from __future__ import annotations

import colorsys
import contextlib
import ctypes
import importlib
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import redis

from jobwire import App
from jobwire.application.redis_url import find_address

LIMITS = (0.001, 0.01, 0.05, 0.2, 1.0)  # seconds
PROBED = "limits:probed"  # for each probe, the locks that it could not take

app = App(retry=False)
log = logging.getLogger("limited")
_lock, _condition, _queue = threading.RLock(), threading.Condition(), queue.Queue[int](5)
_plain = threading.Lock()
_threads = ThreadPoolExecutor(1)
_pair, _both = (threading.Lock(), threading.Lock()), threading.Barrier(2)


@cache
def server() -> redis.Redis:
    """Return a client of redis-py."""
    return redis.Redis.from_url(find_address(app.url).url)


@app.job(name="Idle")
def idle() -> None:
    """Do nothing."""


def write() -> None:
    log.info("row")


def load() -> None:
    importlib.reload(colorsys)


def lock() -> None:
    with _lock, _condition:
        _condition.wait(0.0005)
        _condition.notify_all()
    _plain.acquire()
    try:
        log.debug("locked")
    finally:
        log.debug("unlocked")
        _plain.release()


def borrow() -> None:
    with contextlib.suppress(queue.Full, queue.Empty):
        _queue.put(1, timeout=0.001)
        _queue.get(timeout=0.001)
    _threads.submit(int).result()


def push() -> None:
    idle.enqueue()


def read() -> None:
    server().get("nothing")


def compute() -> None:
    sum(range(1000))


WORK: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (write, load, lock, borrow, push, read, compute)
}


def _define(limit: float) -> None:
    @app.job(name=f"Limited{limit}", timeout=limit)
    def limited(kind: str) -> None:
        ends = time.monotonic() + 2 * limit
        while time.monotonic() < ends:
            WORK[kind]()


for _limit in LIMITS:
    _define(_limit)


@app.job(name="Rows", timeout=0.2)
def rows() -> None:
    """Write rows for two seconds."""
    ends = time.monotonic() + 2
    while time.monotonic() < ends:
        time.sleep(0.002)
        log.info("row")


@app.job(name="Seizes")
def seizes() -> None:
    """Take the locks of the log for a thread that ends."""
    for handler in logging.getLogger().handlers:
        taking = threading.Thread(target=handler.acquire)
        taking.start()
        taking.join()


@app.job(name="LosesNames")
def loses_names() -> None:
    """Let each search for the address of a host take ten minutes."""
    socket.getaddrinfo = lambda *_, **__: time.sleep(600)  # type: ignore[assignment]
    log.info("no name server answers")


@app.job(name="Babbles")
def babbles() -> None:
    """Write rows for as long as the process lives."""
    while True:
        log.info("row")


@app.job(name="Deadlocks")
def deadlocks(number: int) -> None:
    """Wait for a lock that the job with the other number, 0 or 1, keeps."""
    with _pair[number]:
        _both.wait(60)
        log.info("has one lock")
        with _pair[1 - number]:
            pass


@app.job(name="Freezes")
def freezes() -> None:
    """Keep the lock of the interpreter, as some code in C does, and say so when it is kept."""
    line = """echo '{"msg": "freezes"}' >&2; while kill -0 $PPID; do sleep 0.1; done"""
    ctypes.PyDLL(None).system(line.encode())


@app.job(name="Probe")
def probe() -> None:
    """Note the locks that no thread can take any more."""
    taken: list[Any] = [handler.lock for handler in logging.getLogger().handlers]
    taken += [_lock, _plain, _condition, _queue.mutex]
    stuck = []
    for each in taken:
        if each.acquire(timeout=10):
            each.release()
        else:
            stuck.append(repr(each))
    load()  # each of these waits for ever if a lock of its module is lost
    push()
    read()
    _threads.submit(int).result()
    server().rpush(PROBED, ", ".join(stuck))
