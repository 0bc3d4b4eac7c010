"""Functions that cannot be jobs: refused at their definition, or by their result."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from types import BuiltinMethodType, MethodType, ModuleType
from typing import Any

from jobwire.errors import ConfigError

__all__ = ["check_function", "check_result", "place"]


def check_function(function: Callable[..., Any], name: str | None, *, iterable: bool) -> None:
    """Refuse a function whose code a worker could not run.

    Args:
        function: The function of a job.
        name: The wire class, if the definition gives one.
        iterable: True for the generator function of an iterable job.

    Raises:
        ConfigError: The text says what to write instead.
    """
    if problem := _problem(function, name, iterable):
        raise ConfigError(f"job {name or place(function)!r}: {problem}")


def check_result(name: str, result: object) -> None:
    """Refuse the result of a job that stands for code that has not run.

    Call it only for results other than None.

    Raises:
        ConfigError: The result is a coroutine, another awaitable, or a generator. It is closed.
    """
    if not isinstance(result, Awaitable | Generator | AsyncGenerator):
        return
    if isinstance(result, Awaitable):
        problem = "which nothing awaits; make the function `async def` and await it there"
    else:
        problem = "which nothing runs; run the loop in the job, or define it with @app.iterable"
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        result.close()  # so that Python does not also warn of a coroutine that was never awaited
    kind = type(result).__name__.replace("_", " ")
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    raise ConfigError(f"job {name!r}: the function returned {article} {kind}, {problem}")


def place(function: Callable[..., Any]) -> str:
    """Return module and name of a function, for messages."""
    module = getattr(function, "__module__", "?") or "builtins"  # methods of `list` have None
    return f"{module}.{getattr(function, '__qualname__', repr(function))}"


def _problem(function: Callable[..., Any], name: str | None, iterable: bool) -> str | None:
    if isinstance(function, classmethod):
        return "a classmethod cannot be a job; make it a function, or a staticmethod"
    if isinstance(function, type):
        return "a class cannot be a job; decorate the function that does the work"
    if not callable(function):
        return f"{function!r} is not a function"
    if not iterable and _is_generator(function):
        return "a generator function would not run; define it with @app.iterable"
    if _is_method(function):
        return (
            "a method cannot be a job, because a payload cannot hold its object; make it a "
            "function, or a staticmethod, that gets the object's key"
        )
    if name is None and _is_bound(function):
        return (
            "a bound method cannot be a job under its own name, because a payload cannot hold its "
            "object; make it a function, or a staticmethod, that gets the object's key, or give "
            "name='...' if each worker shall use the object that it has"
        )
    if name is None and not _has_name(function):
        return (
            "it has no name to use as the wire class; write a function with `def`, or give "
            "name='...'"
        )
    return None


def _is_generator(function: Callable[..., Any]) -> bool:
    call = inspect.getattr_static(type(function), "__call__", None)
    return any(
        inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate)
        for candidate in (function, call)
    )


def _is_method(function: Callable[..., Any]) -> bool:
    """True for a function of a class body that wants its object. See `_is_bound` for others."""
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if not owner or owner.endswith("<locals>") or inspect.ismethod(function):
        return False
    if isinstance(function, staticmethod | partial):
        return False
    try:
        parameters = [*inspect.signature(function).parameters]
    except ValueError:  # some functions written in C have none
        return False
    return parameters[:1] in (["self"], ["cls"])


def _is_bound(function: Callable[..., Any]) -> bool:
    """True for a method with its object, like `mailer.send`, or with its class."""
    if not isinstance(function, MethodType | BuiltinMethodType):
        return False
    return not isinstance(function.__self__, ModuleType | None)  # `print` has a module


def _has_name(function: Callable[..., Any]) -> bool:
    name = getattr(function, "__name__", "")
    return isinstance(name, str) and name not in ("", "<lambda>")
