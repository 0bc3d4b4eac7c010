"""The documents: ids exist, every block of code has its check, and tables are complete."""

from __future__ import annotations

import ast
import builtins
import configparser
import importlib.util
import inspect
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml

import jobwire
from jobwire import App, AsyncClient, Client, JobType, errors, testing
from jobwire.application.hooks import Event
from jobwire.application.iterabletype import IterableOptions
from jobwire.application.middleware import MiddlewareChain
from jobwire.cli import cli
from jobwire.protocol.normalize import Options
from jobwire.settings import OTHER_VARIABLES, SETTINGS, Setting, resolve
from jobwire.worker import Launcher
from tests.rows import over
from tools.links import tracked
from tools.markdown import FENCE, ROOT, Block, blocks

DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in tracked()]

DEFINITION = re.compile(r"^> \*\*\[((?:X-)?[A-Z]+-\d+)\]\*\*", re.MULTILINE)
SPECIFIED = [ROOT / "SPEC.md", *sorted((ROOT / "spec").glob("*.md"))]
IDS = frozenset(
    identifier
    for path in SPECIFIED
    for identifier in DEFINITION.findall(path.read_text(encoding="utf-8"))
)
AREAS = sorted({identifier.rpartition("-")[0] for identifier in IDS})
# In brackets every id counts; elsewhere its area has to exist: "UTF-8" is not a citation.
CITATION = re.compile(
    rf"(?<=\[)(?:X-)?[A-Z]+-\d+(?=\])|(?<![\w-])(?:{'|'.join(AREAS)})-\d+(?![\w-])"
)

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


# -- docs/how-to/migrate.md


def promises() -> list[tuple[str, str]]:
    """Return the two cells of each row: the name in the other system, and the answer of jobwire."""
    return [(row[0], row[1]) for row in rows(read(DOCS / "how-to" / "migrate.md"), 2)]


@over(("theirs", "answer"), promises())
def test_migrating_promises_what_exists(theirs: str, answer: str) -> None:
    """Each code in an answer is a command that parses, or an expression that can be evaluated."""
    missing = read(DOCS / "explanation" / "missing.md")
    absent = re.findall(r"\*\*.+?\*\*", answer)
    assert bool(absent) == ("missing.md" in answer)
    assert [each for each in absent if each not in missing] == []
    codes = re.findall(r"`([^`]+)`", answer)
    assert codes or "missing.md" in answer or theirs.startswith(WITHOUT_CODE)
    for code in codes:
        if code.startswith(("jobwire ", "--")):
            check_command(shlex.split(code if code[0] == "j" else f"jobwire worker {code}"))
        else:
            evaluate(code)


WITHOUT_CODE = (
    "arguments are pickled",
    "`acks_late=True`",
    "`autoretry_for`",
    "a process for each",
)


def evaluate(code: str) -> None:
    """Evaluate code of a table, with an application whose jobs are collected."""
    app = jobwire.App("redis://127.0.0.1:1")
    add = app.job(name="add")(lambda one=0, two=0: None)
    values = {"app": app, "add": add, "count": add, "App": jobwire.App, "jobwire": jobwire}
    values |= {"when": 2e9, "Snooze": jobwire.Snooze}
    with testing.fake(app) as jobs:
        values["current_job"] = lambda: jobs.enqueued()[0]
        jid = add.enqueue()
        if re.fullmatch(r"\w+=\w+(, \w+=\w+)*", code):  # options of a job
            eval(f"app.job(name='new', {code})(lambda: None)", values)
        elif code in ("retry_in", "enqueue", "enqueue_at", "enqueue_in"):
            assert hasattr(add, code)
        elif code == "jobwire.django":
            assert importlib.util.find_spec(code) is not None
        elif code != "jobs.py":
            made = eval(re.sub(r"^(@|raise |app = )", "", code), values | {"jid": jid})
            if inspect.iscoroutine(made):
                made.close()


# -- docs/reference/faq.md


def test_every_answer_names_requirements_that_exist() -> None:
    questions = rows(read(DOCS / "reference" / "faq.md"), 3)
    assert len(questions) >= 50
    assert without_id(questions, IDS) == []
    assert [row[0] for row in questions if not row[0].endswith("?")] == []
    assert len({row[0] for row in questions}) == len(questions)


def test_the_numbers_of_client_core_are_those_of_the_overview() -> None:
    row = re.search(r"\| client/core \| (\d+) \| \d+ \| (\d+) \|", read(ROOT / "SPEC.md"))
    assert row is not None
    assert f"{row[1]} rules on {row[2]} pages" in read(DOCS / "reference" / "faq.md")


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
    section = read(ROOT / "spec" / "lookup.md").partition("\n## 26 ")[2].partition("\n## ")[0]
    frequent = [row[1:3] for row in trap_rows() if row[0].startswith("**")]
    assert [row[:2] for row in rows(section, 3)] == frequent
    assert frequent


# -- docs/how-to/inspect.md


def test_every_command_of_inspection_is_named() -> None:
    named = set(re.findall(r"`([a-z-]+)(?: [A-Z\[\]]+)?`", read(DOCS / "how-to" / "inspect.md")))
    group = cli.get_command(click.Context(cli), "inspect")
    assert isinstance(group, click.Group)
    assert set(group.commands) - named == set()


# -- all pages


@over("page", PAGES, ids=name)
def test_cited_ids_exist(page: Path) -> None:
    text = read(page)
    if page.name != "SPEC.md":  # it shows the shape of a requirement with an invented id
        assert set(CITATION.findall(text)) - IDS == set()


# -- code on all pages

# Every block is checked. `CHECKS` has the check of each kind that is not `ELSEWHERE`.
# Blocks that a reader types in are typed in by tests/acceptance/test_docs_pages.py.
ELSEWHERE = {
    ("SPEC.md", "redis-cli"): "integration/test_spec_examples.py",
    ("spec/examples.md", "redis-cli"): "integration/test_spec_examples.py",
    ("spec/examples.md", "json"): "integration/test_spec_examples.py",
    ("spec/lookup.md", "abnf"): "integration/test_spec_examples.py",
    ("spec/reliable.md", "mermaid"): "a drawing",
    ("SPEC.md", "mermaid"): "a drawing",
    ("SPEC.md", "text"): "the shape of a requirement",
    ("docs/how-to/implementing.md", "redis-cli"): "acceptance/test_implementing.py",
    **dict.fromkeys(
        ((f"docs/how-to/{page}.md", "ruby") for page in ("unique", "limits", "batches")),
        "interop/test_ruby_side.py",
    ),
}


def check_python(block: Block) -> None:
    compile(block.setup + block.code, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def hidden_imports(text: str) -> list[tuple[int, list[str]]]:
    """Return the lines of Python blocks with names that only a setup imports, or nothing does.

    A reader sees no setup. Names that the reader's own code would define do not count.
    """
    wrong = []
    imported, visible = {*jobwire.__all__}, {*dir(builtins)}
    for block in blocks(text):
        if block.kind == "python":
            imported |= _names(block.setup, imports_only=True)[0]
            defined, used = _names(block.code)
            if missing := (used & imported) - defined - (set() if block.file else visible):
                wrong.append((block.line, sorted(missing)))
            visible |= set() if block.file else defined
    return wrong


def _names(code: str, *, imports_only: bool = False) -> tuple[set[str], set[str]]:
    """Return the names that some code defines, and those that it uses."""
    defined: set[str] = set()
    used: set[str] = set()
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for node in ast.walk(compile(code, "page", "exec", flags=flags)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            defined |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif imports_only:
            continue
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
    return defined, used


@over("page", PAGES, ids=name)
def test_examples_import_what_they_use(page: Path) -> None:
    assert hidden_imports(read(page)) == []


def check_shell(block: Block) -> None:
    shell = shutil.which("sh")
    assert shell is not None
    code = block.code
    if block.kind == "console":
        code = "\n".join(re.findall(r"^\$ (.*)$", code, re.MULTILINE))
        assert code, "a console without a command: lines that begin with '$ '"
    done = subprocess.run([shell, "-n"], input=code, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for words in commands(code):
        check_command(words)


def commands(code: str) -> Iterator[list[str]]:
    """Yield the simple commands of shell code, each as its words without assignments."""
    for line in code.replace("\\\n", " ").splitlines():
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
            lexer.whitespace_split = True
            tokens = list(lexer)
        except ValueError:
            continue  # text of several lines in quotes
        words: list[str] = []
        for token in [*tokens, ";"]:
            if set(token) <= set("|&;()"):
                while words and re.fullmatch(r"\w+=.*", words[0]):
                    words.pop(0)
                if words:
                    yield words
                words = []
            else:
                words.append(token)


def check_command(words: list[str]) -> None:
    """Check the words of a command of this project; other commands are not ours."""
    program = words[0].rpartition("/")[2]
    if words[0].startswith(".ci/"):
        assert (ROOT / words[0]).is_file(), words[0]
    elif program == "jobwire":
        check_options(cli, words[1:])
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets), words
    elif program == "pip":
        project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
        for extras in re.findall(r"jobwire\[([\w,]+)\]", " ".join(words)):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), words


def check_options(command: click.Command, words: list[str]) -> None:
    """Check that a command of `jobwire` and its options exist; values are not looked at."""
    context = click.Context(command, info_name=command.name)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        child = command.get_command(context, words[0])
        assert child is not None, f"no command {words[0]}"
        command, words = child, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    command.make_parser(context).parse_args([word for word in words if not word.startswith(">")])


def check_ini(block: Block) -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(block.code)
    assert parser.sections()


def check_dockerfile(block: Block) -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENTRYPOINT", "CMD", "ENV", "USER"}
    lines = [line for line in block.code.splitlines() if line and not line.startswith("#")]
    assert {line.partition(" ")[0] for line in lines} <= known
    for line in lines:
        instruction, _, value = line.partition(" ")
        if instruction in ("ENTRYPOINT", "CMD"):
            words = json.loads(value)
            if instruction == "ENTRYPOINT":
                check_command(words)


def check_yaml(block: Block) -> None:
    if "<%" not in block.code:  # sidekiq.yml: below
        assert yaml.safe_load(block.code)


CHECKS: dict[str, Callable[[Block], Any]] = {
    "python": check_python,
    "sh": check_shell,
    "console": check_shell,
    "toml": lambda block: tomllib.loads(block.code),
    "yaml": check_yaml,
    "json": lambda block: json.loads(block.code),
    "ini": check_ini,
    "dockerfile": check_dockerfile,
}


def check(page: str, block: Block, before: list[Block]) -> None:
    """Fail unless a block has a check, and passes it."""
    if block.reason is not None or (page, block.kind) in ELSEWHERE:
        return
    if block.kind == "text":
        # The reader waits for these lines in the log of the worker that the page has started.
        started = [old for old in before if old.kind == "console" and "jobwire " in old.code]
        assert started or block.file, "no check: write '<!-- not run: REASON -->' above the block"
        return
    assert block.kind in CHECKS, f"a block of kind {block.kind!r} has no check"
    CHECKS[block.kind](block)


BLOCKS = {
    f"{name(page)}:{block.line}": (name(page), block, found[:number])
    for page in PAGES
    for found in [[*blocks(read(page))]]
    for number, block in enumerate(found)
}


@over(("page", "block", "before"), BLOCKS.values(), ids=BLOCKS)
def test_every_block_has_a_check_and_passes(page: str, block: Block, before: list[Block]) -> None:
    check(page, block, before)


@over("page", PAGES, ids=name)
def test_every_fence_begins_a_line(page: Path) -> None:
    """Nothing else that looks like a fence escapes the test above."""
    rest = FENCE.sub("", read(page))
    assert re.findall(r"^ *(?:```|~~~).*$", rest, re.MULTILINE) == []


FRAGMENTS = Path(__file__).resolve().parents[3] / "changelog.d"
FRAGMENT_NAME = re.compile(
    r"[a-z0-9]+(?:-[a-z0-9]+)*\.(?:spec|added|changed|deprecated|removed|fixed)\.md"
)


def fragment_problem(name: str, text: str) -> str | None:
    """Return the rule that a fragment breaks, if any."""
    if FRAGMENT_NAME.fullmatch(name) is None:
        return f"{name}: the name is not <slug>.<kind>.md; see changelog.d/README.md"
    if not text.strip() or text.lstrip().startswith("#"):
        return f"{name}: a fragment is a text without headings"
    return None


def test_every_fragment_has_a_kind_and_a_text() -> None:
    fragments = [path for path in sorted(FRAGMENTS.iterdir()) if path.name != "README.md"]
    problems = [fragment_problem(path.name, path.read_text("utf-8")) for path in fragments]
    assert [found for found in problems if found] == []


ROOT = Path(__file__).resolve().parents[3]
GLOSSARY_BASES = {
    "Words of the package": ROOT / "python/jobwire",
    "Words of the suite": ROOT / "conformance/jobwire_conformance",
}
GLOSSARY = (ROOT / "docs/glossary.md").read_text("utf-8")
ENTRY = re.compile(r"^- \*\*(.+?)\*\*: (.+?) \(([^()]+)\)$")


def glossary_entries(title: str) -> list[tuple[str, list[str]]]:
    """Return the words of a section with their modules, in the order of the page."""
    section = GLOSSARY.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = re.sub(r"\n +", " ", section).strip().splitlines()
    matches = [ENTRY.fullmatch(line) for line in lines]
    assert [line for line, match in zip(lines, matches, strict=True) if match is None] == []
    return [(match[1], re.findall(r"`([^`]+)`", match[3])) for match in matches if match]


def module_is_there(base: Path, place: str) -> bool:
    """True if a place is a module or a room of the package, or a script of lua/."""
    if place.endswith(".lua"):
        return (ROOT / place).is_file()
    return (base / place).is_dir() or (base / f"{place}.py").is_file()


@pytest.mark.parametrize("title", GLOSSARY_BASES)
def test_the_words_are_in_order_and_their_modules_exist(title: str) -> None:
    words = glossary_entries(title)
    assert len(words) >= 20
    assert [word for word, _ in words] == sorted({word for word, _ in words})
    assert [word for word, places in words if not places] == []
    base = GLOSSARY_BASES[title]
    assert [
        place for _, places in words for place in places if not module_is_there(base, place)
    ] == []


SETTINGS_PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/configuration.md").read_text(
    "utf-8"
)
SETTINGS_TABLE = re.compile(r"<!-- settings: .* -->\n\n(.*)\n<!-- end of settings -->", re.DOTALL)
SETTINGS_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def settings_row(setting: Setting) -> Iterator[str]:
    yield f"`{setting.name}`"
    flags = ", ".join(f"`{flag}`" for flag in setting.flags)
    values = ", ".join(setting.choices) or setting.kind.metavar.replace("|", ", ")
    yield f"{flags} {values}"
    yield setting.shown_default
    yield setting.help


def settings_table() -> str:
    lines = ["| setting | flag and values | default | meaning |", "| --- " * 4 + "|"]
    lines += [f"| {' | '.join(settings_row(setting))} |" for setting in SETTINGS.values()]
    return "".join(f"{line}\n" for line in lines)


def test_the_table_is_the_programs() -> None:
    match = SETTINGS_TABLE.search(SETTINGS_PAGE)
    assert match is not None
    assert match[1] == settings_table()


def test_every_variable_is_named() -> None:
    """By the rule of the page, or in full."""
    assert [name for name in OTHER_VARIABLES if f"`{name}`" not in SETTINGS_PAGE] == []
    rule = {setting.variable for name, setting in SETTINGS.items() if name != "redis"}
    assert rule == {f"JOBWIRE_{name.upper()}" for name in SETTINGS if name != "redis"}
    assert SETTINGS["redis"].variable == "JOBWIRE_REDIS_URL"
    notes = {name: setting.kind.note for name, setting in SETTINGS.items() if setting.kind.note}
    assert notes.pop("capsules") == "separated by `;`"
    assert set(notes.values()) == {"separated by spaces"}


def settings_examples(language: str) -> list[str]:
    return [code for tag, code in SETTINGS_FENCE.findall(SETTINGS_PAGE) if tag == language]


def test_the_examples_are_right(tmp_path: Path) -> None:
    """FETCH-4: all examples are accepted, also in production."""
    (toml,) = settings_examples("toml")
    yaml, erb = settings_examples("yaml")
    for name, text in {"a.toml": toml, "b.yml": yaml, "sidekiq.yml": erb}.items():
        path = tmp_path / name
        path.write_text(text)
        settings = resolve({}, {"TAG": "x"}, tmp_path, file=str(path), environment="production")
        config = settings.worker()
        if name != "sidekiq.yml":
            assert settings["app"] == "shop.jobs:app"
            assert config.capsules["default"].concurrency == 20
            assert config.capsules["mail"].queues == {"mail": 0}


JOBS_PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "jobs.md").read_text(
    "utf-8"
)
API_NAME = re.compile(r"`(?:await |@?job\.|)(\w+)[^`]*`")


def column(title: str) -> set[str]:
    """Return the names in the first column of a section's tables."""
    section = JOBS_PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert section, title
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in API_NAME.findall(cell)}


def methods(kind: type) -> set[str]:
    """Return the public methods and properties of a class, inherited ones included."""
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith("jobwire.")
        for name, member in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }


def test_the_options_are_complete() -> None:
    assert column("Job options") == set(Options.__annotations__)
    own = set(IterableOptions.__annotations__) - set(Options.__annotations__)
    assert column("Definition options") == own | {
        *("name", "timeout", "isolated", "redeliver", "on_commit", "redis", "version")
    }


def test_the_application_is_complete() -> None:
    assert column("`App` arguments") == set(inspect.signature(App).parameters)
    assert column("`App` methods") == methods(App)


def test_the_jobs_are_complete() -> None:
    hooks = column("Job hooks")
    named = (column("Job methods") - {"job", "timedelta", "datetime"}) | hooks
    assert hooks == {"retry_in", "exhausted"}
    twins = {f"a{name}" for name in named if name.startswith(("enqueue", "cancel", "result"))}
    assert named | twins == methods(JobType)


def test_the_clients_are_complete() -> None:
    assert column("Client") == methods(Client) - {"url"}
    assert methods(Client) == methods(AsyncClient)


def test_the_chain_is_complete() -> None:
    assert column("Middleware chains") == methods(MiddlewareChain)


def test_the_events_and_errors_are_complete() -> None:
    assert column("Events") == set(get_args(Event))
    assert column("Errors") == set(errors.__all__)
    assert set(errors.__all__) <= set(jobwire.__all__)


def test_the_worker_is_complete() -> None:
    assert column("Worker in a program") == {"start", "quiet", "stop", "dump"}
    assert column("Worker in a program") <= methods(Launcher)


PACKAGE = ROOT / "python" / "jobwire"
TESTS = ROOT / "python" / "tests"
FLAGS = {
    "-C",
    *(part for each in SETTINGS.values() for flag in each.flags for part in flag.split("/")),
}
OBJECTS = {"App": App(), "Client": Client, "JobType": JobType}
LIST = read(DOCS / "reference" / "behaviours.md").partition("\n## ")[2]  # without the introduction
REASON = re.compile(r"(?:later|advice): \S.{10,}")
CODE = re.compile(r"`([^`]+)`")


@cache
def defined_in(path: str) -> set[str]:
    """Return the tests, or the cases of the conformance suite, that a file defines."""
    if path.startswith("cases/"):
        return {case["case"] for case in json.loads(read(ROOT / "conformance" / path))}
    tree = ast.parse(read(TESTS / path))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    }


def ids(cell: str) -> list[str]:
    """Return the ids of a row: one id or a range."""
    first, _, last = cell.partition("-")
    return [f"S{number:03}" for number in range(int(first[1:]), int((last or first)[1:]) + 1)]


def exists(name: str) -> bool:
    """True if the place that a row names exists."""
    if name.startswith("-"):
        return name in FLAGS
    owner, _, member = name.partition(".")
    if owner in OBJECTS:
        return hasattr(OBJECTS[owner], member)
    return any((place / name).exists() for place in (PACKAGE, DOCS, ROOT))


def faults(row: list[str]) -> list[str]:
    """Return the faults of a row."""
    _, behaviour, places, shown = row
    wrong = [] if behaviour and places else ["says too little"]
    wrong += [f"no {name}" for name in CODE.findall(places) if not exists(name)]
    if CODE.sub("", places).strip():
        wrong.append(f"no place: {places}")
    named = [name.split("::") for name in CODE.findall(shown) if "::" in name]
    for path, test in named:
        if test not in defined_in(path):
            wrong.append(f"no {path}::{test}")
    if not named and REASON.fullmatch(shown) is None:
        wrong.append("neither test nor reason")
    return wrong


def test_every_behaviour_is_there_once() -> None:
    listed = [each for row in rows(LIST, 4) for each in ids(row[0])]
    assert listed == [f"S{number:03}" for number in range(1, 177)]


@pytest.mark.process
@over("row", rows(LIST, 4), ids=lambda row: row[0])
def test_what_a_row_names_is_there(row: list[str]) -> None:
    assert faults(row) == []
