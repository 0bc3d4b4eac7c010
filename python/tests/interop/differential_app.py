"""The jobs of `ruby/differential.rb` in Python: same names, same behaviour, same reports."""

from __future__ import annotations

import base64
import builtins
import json
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import redis

from jobwire import App, current_job
from jobwire.protocol.payload import Job


class Trouble:
    class Deep(Exception):
        pass

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")


def telling(job: Job, call_next: Callable[[], Any]) -> Any:
    """Outermost middleware."""
    told("began", job)
    if job.get("stumble") == "before":
        raise Trouble.Deep("stumbled")
    if job.get("stumble") == "spoils":
        job.fields["spoiled"] = job.fields["tags"] = "by middleware"
    result = call_next()
    if job.get("stumble") == "after":
        raise Trouble.Deep("stumbled")
    return result


def skipping(job: Job, call_next: Callable[[], Any]) -> Any:
    """Skip a job whose field "skip" is true in Ruby."""
    if job.get("skip") is None or job["skip"] is False:
        return call_next()
    return None


app = App(
    generation=7 if os.environ.get("WRITE") == "7" else 8,
    server_middleware=[telling, skipping],
)


@cache
def reports() -> redis.Redis:
    assert app.url, "a worker connects the application first"
    return redis.Redis.from_url(app.url)


def told(what: str, job: Job, /, **more: Any) -> None:
    report = {"what": what, "n": job.get("n"), **more}
    reports().rpush("app:calls", json.dumps(report))


def said(error: BaseException) -> dict[str, str]:
    kind = type(error)
    try:
        message = str(error)[:10_000].encode(errors="surrogateescape").decode(errors="replace")
    except RuntimeError as problem:
        message = str(problem)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return {"class": prefix + kind.__qualname__, "message": message}


def answer(wish: Any) -> Any:
    """Return a hook's result: the answer that the payload asks for."""
    if isinstance(wish, dict):
        raise RuntimeError(str(wish.get("raise")))
    words = {":discard": "discard", ":kill": "kill", ":infinity": float("inf")}
    return words.get(wish, wish) if isinstance(wish, str) else wish


@app.on_error
def _(job: Job, error: BaseException) -> None:
    told("error", job, error=said(error))


@app.on_death
def _(job: Job, error: BaseException) -> None:
    raise RuntimeError("a death handler broke")


@app.on_death
def _(job: Job, error: BaseException) -> None:
    told("death", job, job=job.fields, error=said(error))


def act(*args: Any) -> None:
    job = current_job()
    assert job
    attempt: Any = reports().incr(f"app:attempts:{job.get('n')}")
    script = job.get("script") or [None]
    step = script[min(attempt, len(script)) - 1]
    if step is None:
        told("ran", job, args=args)
        return
    for arg in args if step.get("spoil") else ():
        if isinstance(arg, list):
            arg.append("spoiled")
    message = step.get("message")
    if message is None:
        message = base64.b64decode(step["bytes"]).decode(errors="surrogateescape")
    kind: Any = app
    name = step["raise"]
    kind = getattr(Trouble, name.partition("::")[2], None) or getattr(builtins, name)
    raise kind(message)


app.job(name="Fate::Plain")(act)
app.job(name="Fate::Dropped", retry=False)(act)
app.job(name="Fate::Buried", retry=0)(act)
app.job(name="Fate::Once", retry=1, dead=False, backtrace=2, retry_queue="low", tags=["own"])(act)
hooked = app.job(name="Fate::Hooked")(act)


@app.job(name="Fate::Two")
def two(one: Any, two: Any) -> None:
    act(one, two)


@hooked.retry_in
def _(job: Job, error: BaseException, count: int) -> Any:
    told("retry_in", job, count=count, error=said(error))
    return answer(job.get("hook"))


@hooked.exhausted
def _(job: Job, error: BaseException) -> Any:
    told("exhausted", job, job=job.fields, error=said(error))
    return answer(job.get("last"))


@app.job(name="Fate::Sentinel")
def sentinel() -> None:
    reports().rpush("app:done", "done")
