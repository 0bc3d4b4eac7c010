"""Check the model of the reliable profile with spin.

    python -m tests.model [--write] [NAME]

NAME is a planted mistake: its shortest history is printed. Exit status: 0 if no property fails and
every mistake is found, 1 otherwise, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

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
    """Run every search, with a line for each; write the page, or compare it."""
    problems: list[str] = []
    searches: dict[str, Search] = {}
    out.print(_row("states", "depth", "CPU s", "violated", "bounds and faults"))
    for configuration in CONFIGURATIONS:
        result = searches[configuration.title] = search(configuration)
        text = f"{configuration.title} ({' '.join(configuration.definitions)})"
        out.print(_line(result, result.depth, text), markup=False)
        if result.violated:
            story = "\n".join(result.story)
            problems.append(f"{configuration.title}: {result.violated} is violated:\n{story}")
    complete = [each for each in searches.values() if not each.violated]
    if len(complete) == len(CONFIGURATIONS):
        unreached = frozenset.intersection(*(each.unreached for each in complete))
        problems += [f"no search reaches {file}:{line}: {text}" for file, line, text in unreached]

    found: dict[str, Search] = {}
    out.print(_row("states", "steps", "CPU s", "violated", "planted mistake"))
    for mistake in MISTAKES:
        result = found[mistake.name] = find(mistake)
        out.print(_line(result, len(result.story), mistake.name), markup=False)
        if result.violated != mistake.found_by:
            problems.append(
                f"{mistake.name}: expected a violation of {mistake.found_by}, "
                f"found {result.violated or 'none'}"
            )
    if not problems:
        page = render(searches, found)
        if write:
            PAGE.write_text(page, encoding="utf-8")
        elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            problems.append(f"{PAGE.name} is out of date; run .ci/release-check model --write")
    for problem in problems:
        out.print(problem, markup=False)
    states = sum(each.states for each in searches.values())
    seconds = sum(each.seconds for each in (*searches.values(), *found.values()))
    out.print(
        f"{states:,} states, {len(MISTAKES)} mistakes, {len(problems)} problems "
        f"in {seconds:.0f} s of CPU time"
    )
    return 1 if problems else 0


def _line(result: Search, steps: int, text: str) -> str:
    """Return the line of a table about a search."""
    violated = result.violated or "nothing"
    return _row(f"{result.states:,}", str(steps), f"{result.seconds:.1f}", violated, text)


def _row(states: str, depth: str, seconds: str, violated: str, text: str) -> str:
    return f"{states:>10} {depth:>5} {seconds:>6}  {violated:<13}  {text}"


if __name__ == "__main__":
    sys.exit(main())
