"""Check the model of the reliable profile with spin.

    python -m tests.model [--write] [NAME]

NAME is a planted mistake: its shortest history is printed. Exit status: 0 if no property fails and
every mistake is found, 1 otherwise, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table

from tests.model.page import PAGE, render
from tests.model.plan import CONFIGURATIONS, MISTAKES
from tests.model.spin import ModelError, Search, find, search


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    names = {mistake.name: mistake for mistake in MISTAKES}
    parser.add_argument("mistake", nargs="?", metavar="NAME", help="a planted mistake")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    out = Console(soft_wrap=True, highlight=False)
    try:
        if options.mistake is None:
            return check_all(out, write=options.write)
        if options.mistake not in names:
            parser.error(f"unknown mistake {options.mistake}; expected {', '.join(names)}")
        result = find(names[options.mistake])
    except ModelError as error:
        out.print(str(error), markup=False)
        return 1
    out.print(*result.story, sep="\n", markup=False)
    out.print(f"violated: {result.violated or 'nothing'}")
    return 0 if result.violated else 1


def check_all(out: Console, *, write: bool) -> int:
    """Run every search; print tables; write the page, or compare it."""
    began = time.monotonic()
    problems: list[str] = []
    searches: dict[str, Search] = {}
    table = Table("configuration", "states", "depth", "violated", "seconds")
    for configuration in CONFIGURATIONS:
        result = searches[configuration.title] = search(configuration)
        table.add_row(
            f"{configuration.title}\n{' '.join(configuration.definitions)}",
            f"{result.states:,}",
            str(result.depth),
            result.violated or "nothing",
            f"{result.seconds:.1f}",
        )
        if result.violated:
            problems.append(
                f"{configuration.title}: {result.violated} is violated:\n" + "\n".join(result.story)
            )
    out.print(table)
    complete = [each for each in searches.values() if not each.violated]
    if len(complete) == len(CONFIGURATIONS):
        dead_code = frozenset.intersection(*(each.unreached for each in complete))
        problems += [f"no search reaches {file}:{line}: {text}" for file, line, text in dead_code]

    found: dict[str, Search] = {}
    table = Table("planted mistake", "states", "steps", "found by", "seconds")
    for mistake in MISTAKES:
        result = found[mistake.name] = find(mistake)
        table.add_row(
            mistake.name,
            f"{result.states:,}",
            str(len(result.story)),
            result.violated or "NOT FOUND",
            f"{result.seconds:.1f}",
        )
        if result.violated != mistake.found_by:
            problems.append(
                f"{mistake.name}: expected a violation of {mistake.found_by}, "
                f"found {result.violated or 'none'}"
            )
    out.print(table)
    if not problems:
        page = render(searches, found)
        if write:
            PAGE.write_text(page, encoding="utf-8")
        elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            problems.append(f"{PAGE.name} is out of date; run make model ARGS=--write")
    for problem in problems:
        out.print(problem, markup=False)
    states = sum(each.states for each in searches.values())
    out.print(
        f"{states:,} states, {len(MISTAKES)} mistakes, {len(problems)} problems "
        f"in {time.monotonic() - began:.0f} s"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
