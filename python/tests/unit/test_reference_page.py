"""docs/reference/jobs.md: its tables are complete, and all names exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import jobwire
from jobwire import App, AsyncClient, Client, JobType, errors
from jobwire.application.iterabletype import IterableOptions
from jobwire.application.lifecycle import Event
from jobwire.application.middleware import MiddlewareChain
from jobwire.protocol.normalize import Options
from jobwire.worker import Launcher

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "jobs.md").read_text("utf-8")
NAME = re.compile(r"`(?:await |@?job\.|)(\w+)[^`]*`")


def column(title: str) -> set[str]:
    """Return the names in the first column of a section's tables."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert section, title
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in NAME.findall(cell)}


def methods(kind: type) -> set[str]:
    """Return the public methods and properties of a class, inherited ones included."""
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith("jobwire.")
        for name, member in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }


def test_the_options_are_complete() -> None:
    assert column("Job options") == set(Options.__annotations__)
    own = set(IterableOptions.__annotations__) - set(Options.__annotations__)
    assert column("Definition options") == own | {
        *("name", "timeout", "isolated", "redeliver", "on_commit", "redis", "version")
    }


def test_the_application_is_complete() -> None:
    assert column("`App` arguments") == set(inspect.signature(App).parameters)
    assert column("`App` methods") == methods(App)


def test_the_jobs_are_complete() -> None:
    hooks = column("Job hooks")
    named = (column("Job methods") - {"job", "timedelta", "datetime"}) | hooks
    assert hooks == {"retry_in", "exhausted"}
    twins = {f"a{name}" for name in named if name.startswith(("enqueue", "cancel", "result"))}
    assert named | twins == methods(JobType)


def test_the_clients_are_complete() -> None:
    assert column("Client") == methods(Client) - {"url"}
    assert methods(Client) == methods(AsyncClient)


def test_the_chain_is_complete() -> None:
    assert column("Middleware chains") == methods(MiddlewareChain)


def test_the_events_and_errors_are_complete() -> None:
    assert column("Events") == set(get_args(Event))
    assert column("Errors") == set(errors.__all__)
    assert set(errors.__all__) <= set(jobwire.__all__)


def test_the_worker_is_complete() -> None:
    assert column("Worker in a program") == {"start", "quiet", "stop", "dump"}
    assert column("Worker in a program") <= methods(Launcher)
