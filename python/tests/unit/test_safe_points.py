"""Places at which a job can be interrupted."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from jobwire.worker.execute.safe_points import is_application, is_harmless, landing, own
from tests.rows import over

lock = threading.Lock()


class Traced:
    """Notes the lines of this file at which an error may be raised while `run` runs."""

    def __init__(self) -> None:
        self.lines: set[str] = set()
        self._source = inspect.getsource(sys.modules[__name__]).splitlines()

    def run(self, function: Callable[[], Any]) -> None:
        previous = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # for Python 3.12, which looks when tracing begins
        sys.settrace(self._trace)
        try:
            function()
        finally:
            sys.settrace(previous)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        frame.f_trace_opcodes = True
        if event == "opcode" and is_harmless(frame, Traced.run.__code__):
            self.lines.add(self._source[frame.f_lineno - 1].strip())
        return self._trace


def helper() -> None:
    x = len("in a helper")
    del x


def in_finally() -> None:
    lock.acquire()
    try:
        helper()
    finally:
        len("at the end")
        lock.release()


def in_except() -> None:
    try:
        raise ValueError
    except ValueError:
        len("caught")
        helper()


def in_with() -> None:
    with lock:
        for _ in range(2):
            len("inside")
    len("outside")


@contextmanager
def held() -> Iterator[None]:
    lock.acquire()
    len("taken")
    yield
    lock.release()


def in_manager() -> None:
    with held():
        len("inside")


class Called:
    def __hash__(self) -> int:
        len("called back")
        return 1


def in_callback() -> None:
    condition = threading.Condition()
    with condition:
        condition.wait_for(lambda: bool(len("under a lock")), 1)
    hash(Called())


@over(
    ("function", "harmless"),
    [
        (in_finally, {"lock.acquire()", "helper()", 'x = len("in a helper")'}),
        (in_except, set()),
        (
            in_with,
            {"for _ in range(2):", 'len("inside")', 'len("outside")'},
        ),
        (in_manager, {'len("inside")'}),
        (
            in_callback,
            {
                "condition = threading.Condition()",
                'condition.wait_for(lambda: bool(len("under a lock")), 1)',
                "hash(Called())",
                'len("called back")',
                "return 1",
            },
        ),
    ],
)
def test_no_error_comes_where_it_would_leave_something_undone(
    function: Callable[[], None], harmless: set[str]
) -> None:
    traced = Traced()
    traced.run(function)
    shown = {line for line in traced.lines if not line.startswith(("with ", "def ", "raise "))}
    assert shown - {"return 1"} == harmless - {"return 1"}


def test_the_package_of_a_job_is_the_applications_wherever_it_is() -> None:
    def function(file: str) -> Callable[[], None]:
        names: dict[str, Any] = {}
        exec(compile("def job():\n    pass", file, "exec"), names)
        made: Callable[[], None] = names["job"]
        return made

    packages = "/venv/lib/python3/site-packages"
    job, helper, other = (
        function(f"{packages}/{file}")
        for file in ("shop/jobs.py", "shop/rows.py", "shopify/api.py")
    )
    assert not is_application(job.__code__)
    own(job)
    assert [is_application(each.__code__) for each in (job, helper, other)] == [True, True, False]
    assert is_application(function("/srv/shop/jobs.py").__code__)
    assert not is_application(function("<string>").__code__)
    assert not is_application(threading.Thread.run.__code__)


def test_a_thread_in_a_library_lands_in_the_code_of_the_application() -> None:
    seen: list[Any] = []

    def look() -> None:
        seen.append(landing(sys._getframe(), Traced.run.__code__))

    class Look:
        def __exit__(self, *_: object) -> None:
            look()

        def __enter__(self) -> None: ...

    def job() -> None:
        with Look():
            pass

    Traced().run(job)
    frame, inner = seen[0]
    assert frame.f_code is job.__code__
    assert inner.f_code is Look.__exit__.__code__
