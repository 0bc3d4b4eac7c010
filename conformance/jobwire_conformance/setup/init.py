"""Start an adapter: `conformance.toml`, and a driver and a worker with one gap each to fill in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobwire_conformance.data import CLAIMS
from jobwire_conformance.errors import Usage

__all__ = ["LANGUAGES", "Kit", "Wish", "guess", "write"]

_SKELETONS = Path(__file__).resolve().parent / "skeletons"
_BIN = "jobwire-adapter/bin/"


@dataclass(frozen=True, slots=True)
class Kit:
    """The adapter of one language.

    Attributes:
        files: Skeleton to where it goes.
        driver: How the driver is started.
        worker: How the worker is started.
        build: What has to be done before; empty if nothing.
        sign: A file by which a repository of this language is known.
    """

    files: Mapping[str, str]
    driver: Sequence[str]
    worker: Sequence[str]
    build: str = ""
    sign: str = ""


def _script(interpreter: str, extension: str, sign: str) -> Kit:
    driver, worker = (f"jobwire-adapter/{name}.{extension}" for name in ("driver", "worker"))
    files = {Path(each).name: each for each in (driver, worker)}
    return Kit(files, [interpreter, driver], [interpreter, worker], sign=sign)


LANGUAGES: Mapping[str, Kit] = {
    "python": _script("python3", "py", "pyproject.toml"),
    "ruby": _script("ruby", "rb", "Gemfile"),
    "go": Kit(
        {
            f"jw-{name}/main.go": f"jobwire-adapter/jw-{name}/main.go"
            for name in ("driver", "worker")
        },
        [f"{_BIN}jw-driver"],
        [f"{_BIN}jw-worker"],
        f"mkdir -p {_BIN} && go build -o {_BIN} ./jobwire-adapter/jw-driver "
        "./jobwire-adapter/jw-worker",
        "go.mod",
    ),
    "rust": Kit(
        {f"jw_{name}.rs": f"examples/jw_{name}.rs" for name in ("driver", "worker")},
        ["target/debug/examples/jw_driver"],
        ["target/debug/examples/jw_worker"],
        "cargo build --example jw_driver --example jw_worker",
        "Cargo.toml",
    ),
    "javascript": _script("node", "mjs", "package.json"),
    "shell": _script("sh", "sh", ""),
}
"""Name of the language to what is written for it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What was asked for."""

    directory: Path
    name: str
    language: str
    claims: Sequence[str]
    generation: int


def guess(directory: Path) -> str | None:
    """Return the language that a repository seems to be written in."""
    return next(
        (name for name, kit in LANGUAGES.items() if kit.sign and (directory / kit.sign).exists()),
        None,
    )


def write(wish: Wish) -> list[Path]:
    """Write the files and return them; nothing at all if one of them is there already.

    Raises:
        Usage: That, or they cannot be written.
    """
    kit = LANGUAGES[wish.language]
    texts = {"conformance.toml": _settings(wish, kit)}
    for source, target in kit.files.items():
        texts[target] = (_SKELETONS / wish.language / source).read_text("utf-8")
    there = [name for name in texts if (wish.directory / name).exists()]
    if there:
        raise Usage(
            f"{', '.join(there)} in {wish.directory} would be overwritten, so nothing was written; "
            "move it away, or name another directory"
        )
    written = []
    try:
        for name, text in texts.items():
            path = wish.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            written.append(path)
    except OSError as error:
        raise Usage(f"cannot write {error.filename}: {error.strerror}") from None
    return written


def _settings(wish: Wish, kit: Kit) -> str:
    claims = "\n".join(f'  {"" if claim in wish.claims else "# "}"{claim}",' for claim in CLAIMS)
    build = f"# Before a run: {kit.build}\n" if kit.build else ""
    return f"""\
# What this implementation claims of the protocol, for `jobwire conform check`.

[implementation]
name = {_text(wish.name)}
language = {_text(wish.language)}
generation = {wish.generation} # 7: times as float seconds, 8: as integer milliseconds
claims = [ # begin with one, and take away the # from the next when it is met
{claims}
]

# Commands run in the directory of this file.
{build}
[driver] # for claims of clients and inspectors
command = {_texts(kit.driver)}

[worker] # for claims of workers and schedulers
command = {_texts(kit.worker)}
# fixed = {{ poll = 5.0, beat = 10.0 }} # seconds, where JOBWIRE_POLL and the like cannot be obeyed
"""


def _text(text: str) -> str:
    # A basic string of TOML is one of JSON, but for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _texts(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"
