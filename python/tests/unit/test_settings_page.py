"""docs/reference/configuration.md: the table is the program's, and the examples work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from jobwire.settings import OTHER_VARIABLES, SETTINGS, Setting, resolve

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/configuration.md").read_text("utf-8")
TABLE = re.compile(r"<!-- settings: .* -->\n\n(.*)\n<!-- end of settings -->", re.DOTALL)
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def row(setting: Setting) -> Iterator[str]:
    yield f"`{setting.name}`"
    flags = ", ".join(f"`{flag}`" for flag in setting.flags)
    values = ", ".join(setting.choices) or setting.kind.metavar.replace("|", ", ")
    yield f"{flags} {values}"
    yield setting.shown_default
    yield setting.help


def table() -> str:
    lines = ["| setting | flag and values | default | meaning |", "| --- " * 4 + "|"]
    lines += [f"| {' | '.join(row(setting))} |" for setting in SETTINGS.values()]
    return "".join(f"{line}\n" for line in lines)


def test_the_table_is_the_programs() -> None:
    match = TABLE.search(PAGE)
    assert match is not None
    assert match[1] == table()


def test_every_variable_is_named() -> None:
    """By the rule of the page, or in full."""
    assert [name for name in OTHER_VARIABLES if f"`{name}`" not in PAGE] == []
    rule = {setting.variable for name, setting in SETTINGS.items() if name != "redis"}
    assert rule == {f"JOBWIRE_{name.upper()}" for name in SETTINGS if name != "redis"}
    assert SETTINGS["redis"].variable == "JOBWIRE_REDIS_URL"
    notes = {name: setting.kind.note for name, setting in SETTINGS.items() if setting.kind.note}
    assert notes.pop("capsules") == "separated by `;`"
    assert set(notes.values()) == {"separated by spaces"}


def examples(language: str) -> list[str]:
    return [code for tag, code in FENCE.findall(PAGE) if tag == language]


def test_the_examples_are_right(tmp_path: Path) -> None:
    """FETCH-4: all examples are accepted, also in production."""
    (toml,) = examples("toml")
    yaml, erb = examples("yaml")
    for name, text in {"a.toml": toml, "b.yml": yaml, "sidekiq.yml": erb}.items():
        path = tmp_path / name
        path.write_text(text)
        settings = resolve({}, {"TAG": "x"}, tmp_path, file=str(path), environment="production")
        config = settings.worker()
        if name != "sidekiq.yml":
            assert settings["app"] == "shop.jobs:app"
            assert config.capsules["default"].concurrency == 20
            assert config.capsules["mail"].queues == {"mail": 0}
