"""Places at which an error from outside may be raised in a job without harm to anything else.

An error that another thread raises comes between any two instructions. Inside the logging module,
an import, a pool or our own code it would leave a lock taken, or a connection lost, for the whole
process. So it is raised only in code of the application, and there not

- between `lock.acquire()` and `try:`, nor where a `with` block begins or ends;
- in a `finally` or `except` block, nor in anything that such a block calls;
- in `__enter__`, `__exit__`, `acquire`, `release` or a finalizer;
- in a callback of code that holds locks while it calls.
"""

from __future__ import annotations

import dis
import sysconfig
from collections.abc import Callable, Iterator
from functools import lru_cache
from inspect import unwrap
from os.path import join, sep
from types import CodeType, FrameType
from typing import Any

from jobwire._version import DIRECTORY

__all__ = ["cleans_up", "is_application", "is_harmless", "landing", "own", "stands_well"]

_NAMES = frozenset(
    ("__enter__", "__exit__", "__aenter__", "__aexit__", "__del__", "acquire", "release")
)
_OURS = DIRECTORY + sep
_PATHS = sysconfig.get_paths()
_LIBRARY = tuple({_PATHS["stdlib"] + sep, _PATHS["platstdlib"] + sep})
_PACKAGES = (f"{sep}site-packages{sep}", f"{sep}dist-packages{sep}")
# Library code that may hold a lock, or something borrowed, while it calls other code.
_HOLDERS = (
    "<frozen importlib",
    *(join(root, part) for root in _LIBRARY for part in (
        "asyncio", "concurrent", "importlib", "logging", "multiprocessing", "queue.py",
        "threading.py", "weakref.py",
    )),
    *(join(_OURS, *part.split("/")) for part in (
        "connection", "inspect", "ops", "protocol", "worker/background", "worker/fetch",
    )),
)  # fmt: skip
_roots: set[str] = set()  # files and folders of jobs that are where libraries are


def own(function: Callable[..., object]) -> None:
    """Regard the package of a job's function as the application's, also if it is installed."""
    code = getattr(unwrap(function), "__code__", None)
    if code is None or is_application(code):
        return
    file: str = code.co_filename
    for packages in _PACKAGES:
        before, found, inside = file.rpartition(packages)
        if found and not file.startswith(_OURS):
            part, slash, _ = inside.partition(sep)
            file = before + found + part + slash
    _roots.add(file)
    _is_of_application.cache_clear()


def is_application(code: CodeType) -> bool:
    """True if code belongs to the application, not to Python, jobwire or an installed package."""
    # By its file, because the code of equal functions in different files is equal.
    return _is_of_application(code.co_filename)


@lru_cache(1000)
def _is_of_application(file: str) -> bool:
    if file.startswith(tuple(_roots)):
        return True
    is_library = file.startswith((*_LIBRARY, _OURS, "<")) or any(name in file for name in _PACKAGES)
    return not is_library


def landing(frame: FrameType | None, base: CodeType) -> tuple[FrameType, FrameType | None] | None:
    """Return the innermost frame of a job in which an error may be raised, sooner or later.

    Args:
        frame: The innermost frame of the thread.
        base: The code that calls the job.

    Returns:
        That frame, and the inner frame that must end first, if there is one. None if the thread
        runs no code of the application that may be left.
    """
    calls = []
    while frame is not None and frame.f_code is not base:
        calls.append(frame)
        frame = frame.f_back
    if frame is None:
        return None
    found: tuple[FrameType, FrameType | None] | None = None
    inner: FrameType | None = None
    for index in range(len(calls) - 1, -1, -1):  # from the outermost on
        call = calls[index]
        if call.f_code.co_name in _NAMES or _holds(call.f_code.co_filename):
            break
        if is_application(call.f_code):
            found, inner = (call, None), None
            if index and call.f_lasti in _analysed(call.f_code).kept:
                break  # it is cleaning up, or enters or leaves a `with` block
    if found is None:
        return None
    at = calls.index(found[0])
    for call in reversed(calls[:at]):  # a generator does not end when it gives a value
        if not call.f_code.co_flags & 0x20:
            inner = call
            break
    return found[0], inner


def is_harmless(frame: FrameType, base: CodeType) -> bool:
    """True if an error may be raised in this frame, before its next instruction."""
    if frame.f_lasti not in _analysed(frame.f_code).begins:
        return False
    place = landing(frame, base)
    return place is not None and place[0] is frame


def cleans_up(awaitable: Any) -> bool:
    """True if a coroutine waits in an `except` or `finally` block, or in `__aexit__`."""
    while awaitable is not None:
        frame = getattr(awaitable, "cr_frame", None)
        if frame is not None:
            code = frame.f_code
            if code.co_name in _NAMES or frame.f_lasti in _analysed(code).kept:
                return True
        awaitable = getattr(awaitable, "cr_await", None)
    return False


def stands_well(frame: FrameType) -> bool:
    """True if an asynchronous error may be raised in this innermost frame.

    The interpreter raises it when it next looks, which it does after a call, at the start of a
    function and at the end of a loop's body.
    """
    return frame.f_lasti in _analysed(frame.f_code).open


@lru_cache(1000)
def _holds(file: str) -> bool:
    return file.startswith(_HOLDERS) or "pool" in file or f"{sep}redis{sep}" in file


class _Analysed:
    """The instructions of a function.

    Attributes:
        kept: Offsets at which no error may be raised, nor in a function that is called there.
        begins: Offsets of statements and bodies of loops before which an error may be raised.
        open: Offsets from which an asynchronous error can come only at a harmless place.
    """

    def __init__(self, code: CodeType) -> None:
        self._all = list(dis.get_instructions(code))
        self._at = {one.offset: index for index, one in enumerate(self._all)}
        self._table = [*_table(code)]
        kept = set(self._cleanups()) | set(self._exits())
        kept |= {one.offset for one in self._all if one.opname in ("NOP", "BEFORE_WITH")}
        self.kept = frozenset(self._spread(kept))
        heads = {one.argval for one in self._all if "JUMP_BACKWARD" in one.opname}
        begins = {
            one.offset
            for one in self._all
            if (one.starts_line or one.offset in heads) and one.opname.startswith(_BEGINNING)
        }
        self.begins = frozenset(begins - self.kept)
        open_ = {one.offset for i, one in enumerate(self._all) if self._is_open(i)}
        self.open = frozenset(self._spread(open_ - self.kept))

    def _spread(self, offsets: set[int]) -> Iterator[int]:
        """Yield also the places behind each instruction, where a frame that calls stands."""
        for offset in offsets:
            index = self._at[offset] + 1
            end = self._all[index].offset if index < len(self._all) else offset + 2
            yield from range(offset, end, 2)

    def _cleanups(self) -> Iterator[int]:
        """Yield the instructions of `except` and `finally` blocks, both copies of the latter."""
        names = {one.offset: one.opname for one in self._all}
        handlers = [
            range(start, end, 2) for start, end, to in self._table if names.get(to) == "COPY"
        ]
        lines: set[int | None] = set()
        inside: set[int] = set()
        for handler in handlers:
            here = [self._all[self._at[offset]] for offset in handler if offset in self._at]
            inside.update(one.offset for one in here)
            # The handler of a `with` block, which has its line, only calls `__exit__`.
            lines.update(
                one.positions.lineno
                for one in here
                if one.positions and one.opname.startswith("LOAD")
            )
        lines.discard(None)
        for one in self._all:
            if one.offset in inside or (one.positions and one.positions.lineno in lines):
                yield one.offset

    def _exits(self) -> Iterator[int]:
        """Yield the instructions that leave a `with` block: a call with three times None."""
        for index in range(len(self._all)):
            group = self._all[index : index + 3]
            if [(x.opname, x.argval) for x in group] == [("LOAD_CONST", None)] * 3:
                for each in self._all[index : index + 5]:
                    yield each.offset
                    if each.opname == "CALL":
                        break

    def _is_open(self, index: int) -> bool:
        one = self._all[index]
        if one.opname.startswith(_LEAVING):
            return False
        if "BACKWARD" in one.opname and self._handler(one.offset) != self._handler(one.argval):
            return False  # the compiler leaves the jump out of the `with` or `try` block
        return self._ends_well(index) if _looks(one) else self._goes_well(index)

    def _handler(self, offset: int) -> int | None:
        return next((to for start, end, to in self._table if start <= offset < end), None)

    def _ends_well(self, index: int) -> bool:
        """True if the result of a call is not lost: no `try` begins before it can be given back."""
        if not self._all[index].opname.startswith(_CALLS):
            return True
        for one in self._all[index + 1 :]:
            if one.opname in ("NOP", "BEFORE_WITH"):
                return False
            if not one.opname.startswith(_KEEPING):
                return True
        return True

    def _goes_well(self, start: int) -> bool:
        """True if the next looks of the interpreter are at harmless places on every path.

        A loop is taken to go on.
        """
        seen: set[int] = set()
        ways = list(self._next(start, loop=True))
        while ways:
            index = ways.pop()
            if index in seen:
                continue
            seen.add(index)
            one = self._all[index]
            if one.opname.startswith(_LEAVING):
                return False
            if one.offset in self.kept and one.opname not in ("BEFORE_WITH", "NOP"):
                return False
            if not _looks(one):
                ways += self._next(index, loop=False)
            elif not self._ends_well(index):
                return False
        return True

    def _next(self, index: int, *, loop: bool) -> Iterator[int]:
        one = self._all[index]
        target: int | None = None
        if one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            target = self._at.get(one.argval)
        goes_on = loop and (one.opname == "FOR_ITER" or "BACKWARD" in one.opname)
        if target is not None and not (goes_on and target > index):
            yield target
        falls = not (goes_on and "BACKWARD" in one.opname) and one.opname not in _ALWAYS
        if falls and index + 1 < len(self._all):
            yield index + 1


_BEGINNING = ("LOAD", "PUSH_NULL", "FOR_ITER", "IMPORT")
_CALLS = ("CALL", "PRECALL")
_LEAVING = ("RETURN", "YIELD", "RERAISE", "RAISE")
_ALWAYS = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
_KEEPING = ("CALL", "POP_TOP", "STORE", "TO_BOOL", "POP_JUMP", "COPY", "SWAP", "UNPACK", "CACHE")


def _looks(one: dis.Instruction) -> bool:
    name = one.opname
    return name.startswith((*_CALLS, "RESUME")) or (
        "JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name
    )


@lru_cache(1000)
def _analysed(code: CodeType) -> _Analysed:
    return _Analysed(code)


def _table(code: CodeType) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and handler of each entry of a function's table of exceptions."""
    data = iter(code.co_exceptiontable)

    def number(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(data)
            value = value << 6 | first & 63
        return value

    for first in data:
        start, size, target, _ = number(first), *(number(next(data)) for _ in range(3))
        yield start * 2, (start + size) * 2, target * 2
