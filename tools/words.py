"""Lint of the language: plain English in docs, docstrings, comments and messages.

    python -m tools.words                 judge every file (make lint)
    python -m tools.words PATH...         judge these files and directories
    python -m tools.words --count [...]   print the number of hits for each file

A comment "words: ok, REASON" excuses a hit that is right. It stands on a line of the passage or
next to it; in Markdown it is an HTML comment. An excuse without a hit is itself a hit.
Exit status: 0 clean, 1 hits, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jobwire_conformance.spec.document import PARTS
from tools.passages import FENCE, passages
from tools.word_rules import Hit, hits

ROOT = Path(__file__).resolve().parents[1]

SUFFIXES = frozenset({".md", ".py", ".lua", ".sh", ".toml", ".yml"})
NAMES = frozenset({"Makefile", ".gitignore"})
JSON = ("conformance/cases/", "conformance/mutants/", "schema/")  # the other JSON is data
# The text of others, generated text, and texts that wait for an issue of their own.
SKIPPED = (
    "CHANGELOG.md",
    "docs/conformance/",
    "docs/performance/",
    "lua/README.md",
    "schema/registry.json",  # made from SPEC.md
)
WIDTH = 100  # characters of a line of Markdown
WIDTH_OF_SPECIFICATION = 120
EXCUSE = re.compile(r"(?:#|--)\s*words: ok, \S")
# A line of Markdown that cannot be wrapped: a table, a heading, or one long word (a link).
UNWRAPPED = re.compile(r"(?:> |\s*)\||> \*\*\[|#+ |\s*(?:[-*>] )?\S+$|\[[^\]]+\]: ")


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Print the hits of a checkout, or their number for each file; return the exit status."""
    parser = argparse.ArgumentParser(prog="words", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help="file or directory to judge")
    parser.add_argument("--count", action="store_true", help="print numbers of hits, not the hits")
    chosen = parser.parse_args(arguments)
    prefixes = tuple(chosen.paths) or ("",)
    names = [name for name in tracked(root) if is_under(name, prefixes)]
    if not names:
        parser.error(f"no file to judge under {', '.join(prefixes)}")
    total = 0
    for name in names:
        judged = list(judge(Path(name), (root / name).read_text("utf-8")))
        total += len(judged)
        if chosen.count:
            if judged:
                sys.stdout.write(f"{len(judged):6} {name}\n")
        else:
            for hit in judged:
                sys.stdout.write(f"{name}:{hit}\n")
    if total or chosen.count:
        sys.stderr.write(f"words: {total} hits in {len(names)} files\n")
    return 1 if total else 0


def tracked(root: Path) -> list[str]:
    """Return the files to judge, relative to the checkout: those that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return sorted(
        name
        for name in listed
        if is_text(name) and not is_under(name, SKIPPED) and (root / name).is_file()
    )


def is_text(name: str) -> bool:
    """True if a file holds text to judge; the programs of .ci/ have no suffix."""
    path = Path(name)
    return (
        path.suffix in SUFFIXES
        or path.name in NAMES
        or (path.suffix == ".json" and is_under(name, JSON))
        or (not path.suffix and is_under(name, (".ci/",)))
    )


def is_under(name: str, prefixes: tuple[str, ...]) -> bool:
    """True if a file is one of `prefixes` or lies in one; "" holds every file."""
    return any(
        name == prefix or not prefix or name.startswith(prefix.rstrip("/") + "/")
        for prefix in prefixes
    )


def judge(path: Path, source: str) -> Iterator[Hit]:
    """Yield the hits of a file that no comment excuses, then excuses that excuse nothing."""
    lines = source.splitlines()
    excuses = {number for number, line in enumerate(lines, start=1) if EXCUSE.search(line)}
    used: set[int] = set()
    for passage in passages(path, source):
        around = range(passage.lines[0] - 1, passage.lines[-1] + 2)
        here = excuses.intersection(around)
        for hit in hits(passage):
            if here:
                used |= here
            else:
                yield hit
    if path.suffix == ".md":
        limit = WIDTH_OF_SPECIFICATION if path.as_posix() in PARTS else WIDTH
        yield from too_wide(lines, limit)
    for number in sorted(excuses - used):
        yield Hit(number, "excuse", "words: ok", "nothing: no passage here needs an excuse")


def too_wide(lines: list[str], limit: int) -> Iterator[Hit]:
    """Yield the lines of Markdown that are longer than `limit` and could be wrapped."""
    is_code = False
    for number, line in enumerate(lines, start=1):
        if FENCE.match(line):
            is_code = not is_code
        elif len(line) > limit and not is_code and not UNWRAPPED.match(line):
            yield Hit(number, "width", line[:40] + " ...", f"lines of at most {limit} characters")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
