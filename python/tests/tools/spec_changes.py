"""Write the table of changed requirements in CHANGELOG.md: `python -m tests.tools.spec_changes`.

The table compares the present requirements with those of each version in schema/history.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from jobwire_conformance.spec import history

ROOT = Path(__file__).resolve().parents[3]
BEGIN, END = "<!-- changes of requirements -->\n", "<!-- end of the changes -->\n"
_TABLE = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)


def main(root: Path = ROOT) -> int:
    """Write the table; return the exit status."""
    path = root / "CHANGELOG.md"
    text = path.read_text("utf-8")
    if _TABLE.search(text) is None:
        sys.stderr.write(f"changes: {path} has no line {BEGIN}")
        return 1
    path.write_text(_TABLE.sub(lambda _: f"{BEGIN}\n{table(root)}\n{END}", text, count=1), "utf-8")
    return 0


def table(root: Path = ROOT) -> str:
    """Return a row for each requirement that differs from an earlier version."""
    new = json.loads((root / "schema" / "requirements.json").read_bytes())
    paths = sorted((root / "schema" / "history").glob("*.json"))
    earlier = [json.loads(path.read_bytes()) for path in paths]
    columns = [{change.id: change for change in history.changes(old, new)} for old in earlier]
    heads = " | ".join(f"Since {old['version']}" for old in earlier)
    lines = [f"| Id | {heads} |", "| --- " * (len(earlier) + 1) + "|"]
    for entry in new["requirements"]:
        cells = [_cell(column.get(entry["id"])) for column in columns]
        if any(cells):
            lines.append(f"| {entry['id']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(change: history.Change | None) -> str:
    return "" if change is None else f"{change.kind}: {'; '.join(change.details)}"


if __name__ == "__main__":
    raise SystemExit(main())
