"""The jobs of `ruby/jobs.rb` in Python: same names, same behaviour, same reports in Redis."""

from __future__ import annotations

import builtins
import json
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import redis

from jobwire import App, Cursor, current_job
from jobwire.iterables import over_sequence


class ShoutError(Exception):
    pass


class ReportingApp(App):
    """An application whose jobs report what they did, in keys that begin with `app:`."""

    @cached_property
    def reports(self) -> redis.Redis:
        assert self.url, "a worker connects the application first"
        return redis.Redis.from_url(self.url)

    def close(self) -> None:
        """Close also the connection for reports."""
        super().close()
        if "reports" in self.__dict__:
            self.reports.close()

    def finished(self, *args: Any) -> None:
        """Report the arguments of the job that has run to its end."""
        report = {"jid": jid(), "args": args, "by": "python"}
        self.reports.rpush("app:results", json.dumps(report))

    def started(self) -> None:
        """Report that the job has begun."""
        self.reports.rpush("app:started", jid())


def jid() -> str:
    """Return the id of the running job."""
    job = current_job()
    assert job
    assert job.jid
    return job.jid


def fail(message: str = "boom", error: str = "RuntimeError", *_: Any) -> None:
    raise globals().get(error, getattr(builtins, error, ShoutError))(message)


def make_app(**settings: Any) -> ReportingApp:
    """Return a fresh application, for a worker inside the test process."""
    app = ReportingApp(**settings)

    for name in ("EchoJob", "Reports::Nightly::NestedJob", "OptionsJob"):
        app.job(name=name)(app.finished)

    @app.job(name="AsyncEchoJob")
    async def async_echo(*args: Any) -> None:
        app.finished(*args)

    app.job(name="FailJob")(fail)
    app.job(name="FailWithoutRetryJob", retry=False)(fail)
    app.job(name="FailToDeadJob", retry=0)(fail)
    app.job(name="FailOnceMoreJob", retry=1)(fail)
    app.job(name="FailForgottenJob", retry=0, dead=False)(fail)
    app.job(name="FailWithBacktraceJob", backtrace=True)(fail)

    @app.job(name="FlakyJob")
    def flaky(failures: int, *rest: Any) -> None:
        attempt: Any = app.reports.incr(f"app:attempts:{jid()}")
        if attempt <= failures:
            raise RuntimeError(f"attempt {attempt} of {failures} failed")
        app.finished(failures, *rest)

    @app.job(name="SleepJob")
    def sleep(seconds: float, *rest: Any) -> None:
        app.started()
        time.sleep(seconds)
        app.finished(seconds, *rest)

    @app.job(name="GateJob")
    def gate(name: str, *rest: Any) -> None:
        app.started()
        while not app.reports.lpop(f"app:gate:{name}"):
            time.sleep(0.02)
        app.finished(name, *rest)

    @app.iterable(name="IterJob")
    def iterate(cursor: Cursor, count: int, pause: float) -> Iterator[object]:
        for item, at in over_sequence(cursor, range(count)):
            yield at
            app.reports.rpush(f"app:items:{jid()}", item)
            time.sleep(pause)
        app.finished()

    return app


app = make_app()
python_only = ReportingApp()


@python_only.job(name="PythonJob")
def python_job(*args: Any) -> None:
    """Report an execution of a class that Ruby does not have."""
    time.sleep(0.01)
    python_only.finished(*args)
