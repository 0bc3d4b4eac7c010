"""Pushes of clients under test. Each notes for every job the outcome that the client reported.

Notes are in the hash `told`, jid -> `written`, `refused` or `unsure`; `reported` is set at the end.
A client that reports and does not name a job says that it was not written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jobwire import App, Client, DuplicateJob, Unique
from jobwire.errors import MaybeWritten, RedisTrouble
from jobwire.inspect import Inspector

TOLD = "told"
REPORTED = "reported"


def _note(record: Any, what: str, jids: Iterable[str | None]) -> None:
    for jid in jids:
        record.hset(TOLD, jid, what)


@contextmanager
def _noted(record: Any, jid: str, written: str = "written") -> Iterator[None]:
    """Note how the push of a job ended."""
    try:
        yield
    except MaybeWritten:
        _note(record, "unsure", [jid])
    except (DuplicateJob, RedisTrouble):
        _note(record, "refused", [jid])
    else:
        _note(record, written, [jid])


def _one_by_one(url: str, record: Any) -> None:
    """Push jobs for now and for later."""
    with Client(url) as client:
        for number in range(4):
            jid = f"{number:024x}"
            at = time.time() - 1 if number % 2 else None
            with _noted(record, jid):
                client.push("Quick", at=at, jid=jid, queue="ab"[number // 2])
    record.set(REPORTED, 1)


def _bulk(url: str, record: Any) -> None:
    """Push in bulk, three slices for now and two for later."""
    with Client(url) as client:
        for count, at in ((50, None), (8, time.time() - 1)):
            try:
                written = client.push_bulk("Quick", [[]] * count, at=at, queue="a")
            except RedisTrouble as error:
                _note(record, "written", error.written)
                _note(record, "unsure", error.unsure)
            else:
                _note(record, "written", written)
    record.set(REPORTED, 1)


def _cancel(url: str, record: Any) -> None:
    """Push jobs, then cancel the second, which may run nevertheless if that fails."""
    with Client(url) as client:
        jids = [f"{number:024x}" for number in range(4)]
        for jid in jids:
            with _noted(record, jid, "unsure" if jid == jids[1] else "written"):
                client.push("Quick", jid=jid, queue="a", keep_result=600)
        with suppress(RedisTrouble):
            client.cancel(jids[1])
    record.set(REPORTED, 1)


def _unique(url: str, record: Any) -> None:
    """Push unique jobs, the last one with the key of the first, then delete the second."""
    with Client(url) as client, Inspector(url) as inspector:
        jids = [f"{number:024x}" for number in range(4)]
        for number, jid in enumerate(jids):
            with _noted(record, jid, "unsure" if jid == jids[1] else "written"):
                client.push(
                    "Quick", jid=jid, queue="a", unique=Unique(600, by=lambda key=number % 3: key)
                )
        with suppress(RedisTrouble):
            for job in inspector.jobs("a"):
                if job.jid == jids[1]:
                    inspector.delete(job)
    record.set(REPORTED, 1)


def _batch(url: str, record: Any) -> None:
    """Add jobs to a batch in another one by one, delete the second, and close both batches."""
    app = App()
    quick = app.job(name="Quick", queue="a")(lambda: None)
    app.connect(url)
    with (
        suppress(RedisTrouble),
        Inspector(url) as inspector,
        app.batch() as outer,
        suppress(RedisTrouble),  # which would cancel the outer batch
        app.batch(parent=outer) as batch,
    ):
        for number in range(4):
            try:
                (jid,) = batch.add(quick.s())
            except MaybeWritten as error:
                _note(record, "unsure", error.unsure)
            except RedisTrouble:
                continue
            else:
                _note(record, "unsure" if number == 1 else "written", [jid])
        with suppress(RedisTrouble):
            for job in inspector.jobs("a"):
                if record.hget(TOLD, job.jid or "") in (b"unsure", "unsure"):
                    inspector.delete(job)
    app.close()
    record.set(REPORTED, 1)


def _shards(url: str, record: Any) -> None:
    """Spread jobs over two shards, one by one and in bulk; the second is a database beside."""
    app = App(shards={"near": url, "beside": beside(url)})
    for number in range(6):
        jid = f"{number:024x}"
        with _noted(record, jid):
            app.client.push("Quick", jid=jid, queue="a")
    try:
        written: Iterable[str | None] = app.client.push_bulk("Quick", [[]] * 30, queue="a")
    except RedisTrouble as error:
        written = error.written
        _note(record, "unsure", error.unsure)
    _note(record, "written", written)
    app.close()
    record.set(REPORTED, 1)


def beside(url: str) -> str:
    """Return the URL of the database of the second shard."""
    return url.removesuffix("/0") + "/2"


PUSHES: dict[str, Callable[[str, Any], None]] = {
    "push": _one_by_one,
    "push_bulk": _bulk,
    "cancel": _cancel,
    "unique": _unique,
    "batch": _batch,
    "shards": _shards,
}
