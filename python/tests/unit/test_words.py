"""tools.words: planted faults of each habit are found, and lawful sentences are not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.rows import over
from tools.words import EXCUSE, ROOT, SKIPPED, is_under, judge, main, tracked

# Each sentence breaks the rule once.
PLANTED = {
    "is-no": [
        "A payload that cannot be decoded is no job.",
        "These are no settings.",
        "The reply was no integer.",
        "%r is no number of seconds",
    ],
    "for-because": [
        "The key must show now, for a script is not rolled back.",
        "They are left out, for they change the server.",
        "They need whole seconds, for that is the unit.",
        "It stops, for then others go short.",
        "Nothing is lost: for it was written before.",
        "The action may have failed in part, for Redis rolls nothing back.",
    ],
    "headless": [
        "Who has run a job takes the next.",
        "Reliable fetch: whoever is idle fetches for all.",
        "Nobody reads the key.",
        "The settings, each with the name of who said so.",
        "A job is taken from who is busy.",
        "What is returned has to be called once.",
        "It depends on what the server holds.",
        "The leader closes it, whose it is.",
        "Harmless, whatever the server says.",
        "The queue is read, and what it held is kept.",
    ],
    "phrase": [
        "Both were measured in turn.",
        "Ours is faster by a hair.",
        "It is retried as ever.",
        "It runs inside of a transaction.",
        "The job runs all the same.",
        "Ruby reads it, too.",
        "This holds for Ruby too.",
        "It is five times faster beside real Sidekiq.",
    ],
    "name": [
        "A failed job is buried.",
        "The settler stores outcomes.",
        "A thread that has the turn fetches.",
        "Each lane has a server.",
    ],
}
TITLES = [
    "How jobs are run",
    "Which entries of many are meant",
    "What a payload holds",
    "Whether the pool is closed",
    "Where settings come from",
    "Who fetches",
    "Why Lua",
    "When it came, Unix seconds",
]
LAWFUL = [
    "There is no job in the queue.",
    "If there was no reply, the connection is closed.",
    "The key is no longer there.",
    "It is no more than a second old.",
    "It runs for 30 seconds, for each queue once.",
    "This is a flag for tests, for example a slow one.",
    "Wait for the answer, for at most five seconds.",
    "The hook gets the job, for which it may choose a delay.",
    "A person who reads it needs the id.",
    "A job whose process died is recovered.",
    "Those who operate a worker read this page.",
    "Print what is missing.",
    "Decide what follows a failure.",
    "Who runs the job? The thread that took it.",
    "What is a lease? It is a key with an expiry.",
    "The answer to `who` is a number.",
    'The word "nobody" stands here as a name.',
    "There are too many jobs.",
    "The mutant buries-all is killed, one process at its turn.",
    "The copies are all the same.",
    "A Python worker runs beside a Ruby worker.",
    "The turnaround takes a second.",
]


def found(source: str, name: str = "page.md") -> list[str]:
    return [hit.rule for hit in judge(Path(name), source)]


@over(
    ("rule", "sentence"),
    [(rule, sentence) for rule, sentences in PLANTED.items() for sentence in sentences],
)
@over(
    ("name", "pattern"),
    [
        ("page.md", "# Jobs\n\nA job runs. {}\n"),
        ("page.md", "| fact |\n| --- |\n| {} |\n"),
        ("module.py", '"""A title.\n\n{}\n"""\n'),
        ("module.py", "x = 1\n# {}\n"),
        ("module.py", 'raise ValueError("{}")\n'),
        ("script.lua", "-- script.lua: a title\n-- {}\n"),
        ("run.sh", "#!/bin/sh\n# {}\n"),
        ("schema.json", '{"type": "string", "description": "A text. {}"}\n'),
        ("deviations.toml", 'reason = "{}"\n'),
    ],
    ids=["paragraph", "cell", "docstring", "comment", "message", "lua", "shell", "json", "toml"],
)
def test_a_planted_fault_is_found(name: str, pattern: str, rule: str, sentence: str) -> None:
    assert found(pattern.replace("{}", sentence), name) == [rule]


@over("sentence", LAWFUL)
def test_a_lawful_sentence_is_left_alone(sentence: str) -> None:
    assert found(f"# Jobs\n\nA job runs. {sentence}\n") == []
    assert found(f'"""A title.\n\n{sentence}\n"""\n', "module.py") == []


@over("title", TITLES)
def test_a_title_that_is_an_indirect_question_is_found(title: str) -> None:
    assert found(f"# Page\n\n## {title}\n") == ["title"]
    assert found(f'def f() -> None:\n    """{title}."""\n', "module.py") == ["title"]
    assert found(f"-- script.lua: {title}\n", "script.lua") == ["title"]
    assert found(f'{{"title": "{title}"}}\n', "case.json") == ["title"]


@pytest.mark.parametrize(
    "title",
    [
        "Filters that select entries",
        "True if the pool is closed",
        "Does it lose jobs?",
        "What for?",
    ],
)
def test_a_noun_phrase_and_a_direct_question_are_titles(title: str) -> None:
    assert found(f"# Page\n\n## {title}\n") == []


def test_an_f_string_is_judged_with_its_values_left_out() -> None:
    assert found('error = f"{key}: nobody reads {name!r}"\n', "module.py") == ["headless"]
    assert found('log.warning("event %r" " is no event", name)\n', "module.py") == ["is-no"]


def test_code_is_not_judged() -> None:
    assert found("# Page\n\n```python\nx = 'this is no text'  # an integer is no text\n```\n") == [
        "is-no"
    ]
    assert found("# Page\n\n`nobody` and ``who is `no` ``, [x](what/is-no)\n") == []
    assert found("nobody = who = 1\n", "module.py") == []


def test_a_sentence_on_two_lines_is_found_where_it_begins() -> None:
    (hit,) = judge(Path("page.md"), "# Page\n\nA text that is\nno payload, and more\n")
    assert (hit.line, hit.found) == (3, "text that is no payload, and")
    (hit,) = judge(Path("module.py"), '"""A title.\n\nOne line.\nOf who knows.\n"""\n')
    assert hit.line == 4


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("page.md", "It is no job. <!-- words: ok, a quotation -->\n"),
        ("page.md", "It is\nno job.\n<!-- words: ok, a quotation -->\n"),
        ("module.py", 'x = "a is no b"  # words: ok, a quotation\n'),
        ("script.lua", "local x -- words: ok, a quotation\n-- it is no job\n"),
    ],
)
def test_an_excuse_excuses_and_needs_a_hit_and_a_reason(name: str, source: str) -> None:
    assert found(source, name) == []
    assert found(source.replace("no", "a"), name) == ["excuse"]
    assert "is-no" in found(source.replace(", a quotation", ""), name)


def test_a_wide_line_of_markdown_is_found_unless_it_cannot_be_wrapped() -> None:
    wide = "word " * 20 + "words"
    assert found(f"# Page\n\n{wide}\n") == ["width"]
    assert found(f"# Page {wide}\n\n| {wide} |\n\n```\n{wide}\n```\n\n- {'x' * 120}\n") == []


def test_the_command_says_what_is_wrong_by_its_exit_status(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "a.md").write_text("All is well.\n", "utf-8")
    (tmp_path / "b/c.md").write_text("All is well.\nThis is no text.\n", "utf-8")
    assert main(["a.md"], tmp_path) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["b"], tmp_path) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith('b/c.md:2: is-no: "well. This is no text." -> write ')
    assert printed.err == "words: 1 hits in 1 files\n"
    assert main(["--count"], tmp_path) == 1
    assert capsys.readouterr().out == "     1 b/c.md\n"


def test_a_path_without_files_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["no/such/path"])
    assert ended.value.code == 2


def test_the_files_to_judge_are_those_of_the_project() -> None:
    names = tracked(ROOT)
    assert {"README.md", "Makefile", ".ci/lint", "lua/fetch.lua"} <= set(names)
    assert not any(is_under(name, SKIPPED) for name in names)


@over("prefix", SKIPPED)
def test_the_lists_name_no_path_in_vain(prefix: str) -> None:
    assert (ROOT / prefix).is_dir() if prefix.endswith("/") else (ROOT / prefix).is_file()


def test_an_excuse_is_a_comment() -> None:
    assert EXCUSE.search('say "words: ok, reason"') is None
