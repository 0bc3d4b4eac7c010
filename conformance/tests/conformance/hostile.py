"""Results and a trace whose texts try to break a page."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from jobwire_conformance import reports
from jobwire_conformance.reports.matrix import find
from jobwire_conformance.reports.results import Results, dump, load

__all__ = ["GONE", "MARKS", "pages", "results", "write"]

SCRIPT = "</pre></style></title><script>document.title='taken'</script><img src=x onerror=alert(1)>"
QUOTES = "\" ' onmouseover=alert(1) &lt; &amp;"
CONTROL = "\0\x01\x1b[31mred\x7f\x9b\u202eright to left\u2066\ufeff\r\n\tend"
SURROGATE = "half \ud800 of a pair"
CELL = "a | b\n| --- | `code` [link](javascript:alert(1)) <b>bold</b> \\"
LONG = "x" * 300_000
GONE = f"PUSH-{99999}"  # the id of no requirement, built so that it is not a citation
MARKS = (SCRIPT, QUOTES, CONTROL, SURROGATE, CELL, LONG)


def results(**more: Any) -> Results:
    """Return results in which every foreign text is one of `MARKS`."""
    checks = [
        {
            **{"case": "push-plain", "requirement": "PUSH-1", "claim": "client/core"},
            **{"keyword": "MUST", "status": "fail", "message": mark, "by": "implementation"},
            **{"expected": {"$": "raw", "is": mark}, "seen": mark, "trace": [0, 5]},
        }
        for mark in MARKS
    ]
    checks += [
        {
            **{"case": "push-head", "requirement": "PUSH-2", "claim": "client/core"},
            **{"keyword": "MUST", "status": "deviation", "reason": SCRIPT + CELL},
            **{"issue": QUOTES, "message": CONTROL},
        },
        {
            **{"case": "gone", "requirement": GONE, "claim": "client/core"},
            **{"keyword": "MUST", "status": "blocked", "blocked_by": SCRIPT + SURROGATE},
        },
        {
            **{"case": "push-plain", "requirement": "PUSH-3", "claim": "client/core"},
            **{"keyword": "MUST", "status": "pass"},
        },
    ]
    made: Any = {
        "results": 1,
        "spec": SCRIPT,
        "suite": CELL,
        "driver": 1,
        "implementation": {
            **{"name": SCRIPT, "version": QUOTES + CELL, "variant": CONTROL},
            **{"language": SCRIPT + LONG, "source": SURROGATE},
        },
        "claims": {"client/core": {"met": False, "checks": {"fail": 6, "pass": 1}}},
        "generation": "8.1",
        "server": {"name": "valkey", "version": SCRIPT},
        "seed": 0,
        "started": "2026-11-20T16:20:07Z",
        "status": 1,
        "checks": checks,
        "loss_map": [
            {
                **{"case": "push-plain", "point": "LPUSH#1", "side": "after", "outcome": "lost"},
                **{"window": "LW-1", "trace": [0, 5]},
            },
            {"case": "other", "point": "LPUSH#1", "side": "before", "outcome": "kept"},
        ],
        "errors": [{"status": 3, "message": SCRIPT + CONTROL + CELL}],
        "again": SCRIPT + QUOTES,
        "trace": "trace.jsonl",
        **more,
    }
    whole: Results = made
    return whole


def write(directory: Path) -> Results:
    """Write results.json and trace.jsonl; return the results as read back."""
    (directory / "results.json").write_bytes(dump(results()))
    raw = {"base64": base64.b64encode(bytes(range(256)) * 40).decode()}
    lines = []
    for number, mark in enumerate(MARKS):
        encoded = mark.encode("utf-8", "surrogatepass")
        readable: Any = mark
        if mark == SURROGATE:
            readable = {"base64": base64.b64encode(encoded).decode()}
        lines.append(
            {
                **{"case": "push-plain", "proc": mark[:300], "seq": number, "conn": 1},
                **{"label": "LPUSH", "argv": ["LPUSH", readable, raw, *["more"] * 50]},
                **{"reply": readable if number % 2 else None, "us": 5, "tx": False},
                **{"fault": SCRIPT if number == 2 else None, "ms": 0.5, "sent": number != 3},
            }
        )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "trace.jsonl").write_text(text, "utf-8")
    return load(directory)


def pages(directory: Path) -> list[Path]:
    """Write every kind of page from hostile results."""
    reports.write(directory, write(directory))
    for name, content in reports.matrix_pages(find([directory])[0]).items():
        reports.put(directory / name, content)
    return [directory / "report.html", directory / "matrix.html"]
