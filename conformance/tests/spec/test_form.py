"""The lints of the form of SPEC.md: each finds a planted fault, and nothing in a sound document."""

from __future__ import annotations

import json
from pathlib import Path

from jobwire_conformance.spec import checks, form_lints, lints
from jobwire_conformance.spec.document import read, read_checkout
from tests.rows import over

ROOT = Path(__file__).resolve().parents[3]
SOUND = """# A protocol

Version **1.0**.

| Profile | Requires | Purpose |
| --- | --- | --- |
| client/core | | push |
| worker/core | | run |

## 3 Terms

| Term | Meaning |
| --- | --- |
| lease | the right to hold a job |
| queue, payload | a list |

| Not used | Written instead |
| --- | --- |
| seize, grab | `kill` |

## 5 Keys

Table 5-1: keys.

| Key | Meaning |
| --- | --- |
| `queues` | the names, as `must` be |

> **[KEY-1]** · client/core · interop · all · since 1.0 · test: wire
> A client **MUST** write the keys of table 5-1 (they are sets; or lists).

Why: so.

Seen in: 6, 7 and 8.

> **[KEY-2]** · worker/core · interop · all · since 1.0 · test: wire
> A worker **MUST** try again within 10 s.

Why: it must.

```mermaid
flowchart LR
  a --> b
```

Figure 5-1: a drawing.

- An item that binds nothing.
"""
RECORDED = {"KEY-1"}


def hits(text: str) -> list[tuple[str, str]]:
    """Return the lint and the problem of each hit."""
    return [(lint, problem) for _, lint, problem in form_lints.hits(read(text), RECORDED)]


def test_a_sound_document_has_no_hit() -> None:
    assert hits(SOUND) == []


@over(
    ("lint", "old", "new", "words"),
    [
        ("clause", "within 10 s.", "within 10 s; it waits.", "a semicolon"),
        ("clause", "within 10 s.", "within 10 s. Then it ends.", "two sentences"),
        ("clause", "within 10 s.", "within 10 s, and it waits.", "'and it' begins"),
        ("clause", "within 10 s.", "within 10 s, and the job stays.", "'and the job stays' begins"),
        ("clause", "within 10 s.", "within 10 s" + " or 11 s" * 25 + ".", "more than 45"),
        ("bound", "again within 10 s", "again", "'again' has no bound"),
        ("bound", "try again within 10 s", "retry", "'retry' has no bound"),
        ("bound", "try again within 10 s", "look soon, as KEY-1 says", "'soon' has no bound"),
        ("bound", "try again within 10 s", "be in time", "'in time' has no bound"),
        ("bound", "try again within 10 s", "wait with a pause", "'pause' has no bound"),
        ("term", "| queue, payload | a list |\n", "", None),
        ("term", "try again within", "renew its lease within", None),
        ("term", "try again within", "grab it within", "write `kill`"),
        ("term", "Why: it must.", "Why: others grab it.", "write `kill`"),
        ("term", "Why: so.", "Why: so. `Grab` is a name.", None),
        ("term", "Seen in: 6, 7 and 8.", "Seen in: 6, 7 and 8 seize it.", "write `kill`"),
        ("term", "try again within", "promote it within", "does not define 'promote'"),
        ("cell", "An item that binds nothing", "An item must bind", "'must' binds without"),
        ("cell", "as `must` be", "as must be", "'must' binds without"),
        ("cell", "keys of table 5-1", "keys of table 5-2", "there is no table 5-2"),
        ("cell", "keys of table 5-1", "keys", "no block refers to table 5-1"),
        ("cell", "Table 5-1", "Table 6-1", "Table 6-1 is in another section"),
        ("cell", "\n| Key | Meaning |", "\n\n\n\n| Key | Meaning |", "no table follows"),
        ("profile", "| worker/core | | run |\n", "", "worker/core has no row"),
        ("profile", "| run |\n", "| run |\n| worker/more | | rest |\n", "belongs to worker/more"),
        ("alone", "try again", "act on that refusal", "'on that refusal' points outside"),
        ("alone", "A worker **MUST**", "That worker **MUST**", "'That worker' points outside"),
        ("alone", "A worker **MUST**", "The same step **MUST**", "'The same step' points outside"),
        ("alone", "try again", "take such an entry", "'such an entry' points outside"),
        ("alone", "try again", "log these four fields", "'these four fields' points outside"),
        ("alone", "try again", "log the four fields", "'the four fields' points outside"),
        ("alone", "try again", "take the steps above", "'steps above' points outside"),
        ("alone", "try again", "log this table", "'this table' points outside"),
        ("seen-in", "Why: it must.", "Why: so.\n\nSeen in: 8.", "KEY-2: no recorded run"),
        ("promise", "Seen in: 6, 7 and 8.", "Seen in: 6, 7 and 8, but not all.", "KEY-1: 'Seen in"),
        (
            "promise",
            "Seen in: 6, 7 and 8.",
            "Seen in: 6 and 7; 8.1.7 has another.",
            "take something",
        ),
        ("promise", "Seen in: 6, 7 and 8.", "Seen in: 6, which does not wait.", "does not"),
        ("caption", "Figure 5-1: a drawing.", "A drawing.", "no caption follows"),
    ],
)
def test_a_planted_fault_is_found(lint: str, old: str, new: str, words: str | None) -> None:
    assert old in SOUND
    found = hits(SOUND.replace(old, new, 1))
    if words is None:  # the edit alone is sound
        assert found == []
    else:
        assert lint in {name for name, _ in found}
        assert any(words in problem for _, problem in found)


def test_a_number_of_a_figure_is_used_once() -> None:
    figure = SOUND[SOUND.index("```mermaid") : SOUND.index("- An item")]
    assert hits(SOUND + figure) == [("caption", "Figure 5-1 is already on line 41")]


@over(
    "words",
    [
        "look (RETRY-4)",
        "store the result (done, retry)",
        "look if, and only if, it is idle",
        "use a number that is not negative, or not a number",
        "choose one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21",
        "look. Its choices are:\n> - one;\n> - two",
        "end the step that failed, or in that order the other steps",
        "log an error and the key of that error, or such as KEY-1 has",
        "take the seven steps of table 5-1",
        "look as this table says:\n> | A |\n> | --- |\n> | b |",
    ],
)
def test_what_resembles_a_fault_is_left_alone(words: str) -> None:
    assert hits(SOUND.replace("try again within 10 s", words)) == []


@over("seen", ["6, 7 and 8; in `8.x` too, 5.8", "6 and 7. 8 waits 8 s; 1.8 s."])
def test_other_numbers_take_nothing_back(seen: str) -> None:
    assert hits(SOUND.replace("6, 7 and 8.", seen)) == []


def test_only_what_resembles_a_fault_is_in_the_table() -> None:
    document = read_checkout(Path(__file__).parents[3])
    table = dict(form_lints.LOOKED_AT)
    form_lints.LOOKED_AT.clear()
    try:
        found = [problem for _, problem in form_lints.LINTS["promise"](document)]
    finally:
        form_lints.LOOKED_AT.update(table)
    assert {problem.partition(":")[0] for problem in found} == {*table}


def test_never_again_is_a_bound() -> None:
    text = SOUND.replace("**MUST** try again within 10 s", "**MUST NOT** try again")
    assert hits(text) == []


def test_a_retired_block_is_left_alone() -> None:
    text = SOUND.replace("all · since 1.0 · test", "all · since 1.0 · retired 1.1 · test")
    assert {lint for lint, _ in hits(text.replace("10 s", "10 s; or not"))} == {"cell", "profile"}


def test_the_terms_of_this_list_are_found() -> None:
    """A form of a word that the list does not match would never be reported."""
    text = SOUND.replace("| lease | the right to hold a job |\n", "")
    text = text.replace("try again within", "renew its leases within")
    assert hits(text) == [("term", "KEY-2: section 3 does not define 'lease'")]


def test_runs_of_sidekiq_are_records(tmp_path: Path) -> None:
    """An interop test, a recording of Sidekiq, or a check in a report of Sidekiq."""
    cited = {
        "KEY-1": {"test": ["python/tests/interop/test_a.py::test_b"]},
        "KEY-2": {"test": ["python/tests/unit/test_a.py::test_b"]},
        "KEY-3": {"fixture": ["fixtures/sidekiq/8.1.7/states.json"]},
        "KEY-4": {"fixture": ["fixtures/invalid/payloads.json"]},
    }
    assert checks.recorded(tmp_path, cited) == {"KEY-1", "KEY-3"}
    reports = tmp_path / "conformance" / "reports" / "sidekiq"
    reports.mkdir(parents=True)
    summary = {
        "summary": 1,
        "implementation": {"name": "sidekiq", "version": "8.1.7"},
        "generation": "8.1",
        "spec": "1.0",
        "suite": "0.1.0",
        "started": "2026-11-23T00:00:00Z",
        "server": {"name": "valkey", "version": "9.1.2"},
        "claims": {"client/core": {"met": True, "checks": {"pass": 1}, "set": "0" * 12}},
        "exceptions": [
            {"status": "pass", "checks": {"client/core": ["push-head#PUSH-1"]}},
            {"status": "blocked", "checks": {"client/core": ["push-head#PUSH-3"]}},
        ],
    }
    (reports / "8.1.7.json").write_text(json.dumps(summary), "utf-8")
    assert checks.recorded(tmp_path, cited) == {"KEY-1", "KEY-3", "PUSH-1"}


def test_hits_are_faults_with_a_place(tmp_path: Path) -> None:
    text = SOUND.replace("again within 10 s", "again")
    cited = {"KEY-1": {"fixture": ["fixtures/sidekiq/x"]}}
    (fault,) = lints.of_form(tmp_path, read(text), cited)
    assert (fault.place, fault.lint) == ("SPEC.md:36", "bound")
    (tmp_path / "spec").mkdir()
    annex = (ROOT / "spec" / "template.md").read_text("utf-8")
    text = annex.replace("one thing.", "one thing. It has two sentences.")
    (tmp_path / "spec" / "two.md").write_text(text, "utf-8")
    (fault,) = lints.of_form(tmp_path, read(SOUND), cited)
    assert (fault.place, fault.lint) == ("spec/two.md:18", "clause")
