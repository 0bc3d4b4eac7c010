"""One test that goes over many rows, for checks of one file, row or name each.

As many tests would cost a hundred times as much to collect and report as to run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["over"]


def over(
    names: str | tuple[str, ...],
    rows: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for every row; at the end, fail with a list of the rows that failed.

    The arguments are those of `pytest.mark.parametrize`, without marks. Rows share the fixtures.
    """
    keys = names.split(",") if isinstance(names, str) else names
    # An iterator would be empty at a second run in the same process.
    values = [row if len(keys) > 1 else (row,) for row in rows]
    labels = [str(ids(row[0])) if callable(ids) else ", ".join(map(_shown, row)) for row in values]
    if ids is not None and not callable(ids):
        labels = [*ids]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def all_rows(**fixtures: Any) -> None:
            assert values, "there is no row"
            faults = []
            for label, row in zip(labels, values, strict=True):
                try:
                    test(**fixtures, **dict(zip(keys, row, strict=True)))
                # All faults are named in one run, also that of an exception which was not raised.
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
                    faults.append(f"{label}: {type(error).__name__}: {error}")
            if faults:
                raise AssertionError(f"{len(faults)} of {len(values)} rows:\n" + "\n".join(faults))

        signature = inspect.signature(test)
        kept = [each for name, each in signature.parameters.items() if name not in keys]
        all_rows.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in kept]
        )
        all_rows.__name__, all_rows.__doc__ = test.__name__, test.__doc__
        all_rows.__module__, all_rows.__qualname__ = test.__module__, test.__qualname__
        return all_rows

    return decorate


def _shown(value: object) -> str:
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return str(name) if isinstance(name, str) else repr(value)[:80]
