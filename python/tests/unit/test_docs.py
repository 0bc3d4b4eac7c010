"""The documents: links lead to existing places, ids exist, examples compile."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
CLIENTS = DOCS / "how-to" / "clients"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

DEFINITION = re.compile(r"^> \*\*\[([A-Z]+-[1-9]\d*)\]\*\*", re.MULTILINE)
IDS = frozenset(DEFINITION.findall((ROOT / "SPEC.md").read_text(encoding="utf-8")))
AREAS = sorted({identifier.partition("-")[0] for identifier in IDS})
# In brackets every id counts; elsewhere its area has to exist: "UTF-8" is not a citation.
CITATION = re.compile(rf"(?<=\[)[A-Z]+-\d+(?=\])|(?<![\w-])(?:{'|'.join(AREAS)})-\d+(?![\w-])")

FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
NOTE = re.compile(r"note: \S.{20,}")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def rows(text: str, columns: int) -> list[list[str]]:
    """Return the cells of the tables without heads; fail if a row has not `columns` cells."""
    lines = []
    for line in FENCE.sub("", text).splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
            assert len(cells) == columns, line
            lines.append(cells)
    return [
        row
        for row, after in zip(lines, [*lines[1:], None], strict=True)
        if row[0].strip("- ") and not (after and set("".join(after)) == {"-"})
    ]


def without_id(questions: list[list[str]], known: frozenset[str]) -> list[str]:
    """Return the rows (question, answer, ids) whose last cell is not existing ids."""
    return [
        row[0]
        for row in questions
        if not row[1] or not row[2] or not set(row[2].split(", ")) <= known
    ]


def unanswered(traps: list[list[str]], known: frozenset[str]) -> list[str]:
    """Return the rows (number, mistake, result, answer) without ids and without a note."""
    wrong = []
    for row in traps:
        cited, _, note = row[3].partition("; ")
        if NOTE.fullmatch(row[3]) is not None:
            continue
        if not set(cited.split(", ")) <= known or (note and NOTE.fullmatch(note) is None):
            wrong.append(row[0])
    return wrong


def anchors(text: str) -> set[str]:
    """Return the link fragments of a page's headings."""
    plain = (heading.strip().lower() for heading in HEADING.findall(FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def broken(page: Path, text: str) -> list[str]:
    """Return the broken links of a page, except those to other sites."""
    wrong = []
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        leads = target.exists() and target.is_relative_to(ROOT)
        if leads and fragment:
            there = text if target == page else read(target) if target.is_file() else ""
            leads = fragment in anchors(there)
        if not leads:
            wrong.append(link)
    return wrong


def fences(language: str) -> dict[str, str]:
    """Return the code of one language on all pages, by page and position."""
    return {
        f"{page.stem}-{number}": code
        for page in PAGES
        for number, (tag, code) in enumerate(FENCE.findall(read(page)))
        if tag == language
    }


# -- docs/reference/faq.md


def test_every_answer_names_requirements_that_exist() -> None:
    questions = rows(read(DOCS / "reference" / "faq.md"), 3)
    assert len(questions) >= 50
    assert without_id(questions, IDS) == []
    assert [row[0] for row in questions if not row[0].endswith("?")] == []
    assert len({row[0] for row in questions}) == len(questions)


def test_a_question_without_a_known_id_is_found() -> None:
    page = "| Q | A | Ids |\n| --- | --- | --- |\n| a? | b | {} |\n"
    for cell, wrong in {
        "AREA-1": [],
        "AREA-1, AREA-9": ["a?"],
        "": ["a?"],
        "see AREA-1": ["a?"],
    }.items():
        assert without_id(rows(page.format(cell), 3), frozenset({"AREA-1"})) == wrong


# -- docs/reference/traps.md


def trap_rows() -> list[list[str]]:
    """Return the rows of the list, without the table of steps before it."""
    return rows(read(DOCS / "reference" / "traps.md").partition("\n## ")[2], 4)


def test_every_trap_is_answered() -> None:
    traps = trap_rows()
    assert [row[0].strip("*") for row in traps] == [str(n) for n in range(1, len(traps) + 1)]
    assert len(traps) >= 103
    assert unanswered(traps, IDS) == []


def test_section_26_of_the_specification_repeats_the_frequent_traps() -> None:
    section = read(ROOT / "SPEC.md").partition("\n## 26 ")[2].partition("\n## ")[0]
    frequent = [row[1:3] for row in trap_rows() if row[0].startswith("**")]
    assert [row[:2] for row in rows(section, 3)] == frequent
    assert frequent


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("AREA-1", True),
        ("AREA-1; note: something that is long enough", True),
        ("note: something that is long enough", True),
        ("AREA-2", False),
        ("AREA-1, AREA-2", False),
        ("", False),
        ("note: no", False),
        ("AREA-1; something that is long enough", False),
    ],
)
def test_a_trap_without_an_answer_is_found(answer: str, right: bool) -> None:
    row = ["1", "mistake", "result", answer]
    assert unanswered([row], frozenset({"AREA-1"})) == ([] if right else ["1"])


# -- all pages


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_cited_ids_exist(page: Path) -> None:
    assert set(CITATION.findall(read(page))) - IDS == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page, read(page)) == []


@pytest.mark.parametrize(
    "link", ["no.md", "../README.md", "/etc/passwd", "#no", "README.md#no", "docs/#no"]
)
def test_a_broken_link_is_found(link: str) -> None:
    text = f"# A page\n\n[it]({link}) [ok](SPEC.md) [ok](#a-page) [ok](https://example.org/no)\n"
    assert broken(ROOT / "README.md", text) == [link]


@pytest.mark.parametrize("code", fences("sh").values(), ids=fences("sh"))
def test_shell_parses(code: str) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    done = subprocess.run([shell, "-n"], input=code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("code", fences("python").values(), ids=fences("python"))
def test_python_compiles(code: str) -> None:
    compile(code, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("path", sorted(CLIENTS.iterdir()), ids=lambda path: path.name)
def test_the_guide_shows_the_clients_as_they_are(path: Path) -> None:
    codes = [code for _, code in FENCE.findall(read(DOCS / "how-to" / "implementing.md"))]
    assert read(path) in codes
