"""A new adapter: `conformance.toml`, and a driver and a worker with one gap each to fill in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobwire_conformance.data import CLAIMS, complete
from jobwire_conformance.errors import Usage

__all__ = ["LANGUAGES", "AdapterPlan", "Kit", "guess", "kit_of", "write"]

_SKELETONS = Path(__file__).resolve().parent / "skeletons"
_BIN = "jobwire-adapter/bin/"
_JARS = "target/classes:target/dependency/*"  # as Maven has them; Gradle: build/classes/java/main


@dataclass(frozen=True, slots=True)
class Kit:
    """The adapter of one language.

    Attributes:
        files: Path of each skeleton, and the path of its copy.
        driver: Command that starts the driver.
        worker: Command that starts the worker.
        build: Command that builds them; empty if none is needed.
        sign: Pattern of the name of a file that marks a repository of this language.
        gaps: Functions to fill in: of the driver, and of the worker.
    """

    files: Mapping[str, str]
    driver: Sequence[str]
    worker: Sequence[str]
    build: str = ""
    sign: str = ""
    gaps: tuple[str, str] = ("`push`", "`start`")

    def step(self, section: str) -> str:
        """Return the instruction to write the driver or the worker."""
        at = ("driver", "worker").index(section)
        sources = [path for path in self.files.values() if section in path.lower()]
        source = next((path for path in sources if not path.endswith(".csproj")), None)
        if source is None:
            return f"write the {section}, as {next(iter(self.files.values()))} says"
        return f"fill in {self.gaps[at]} in {source}"


def _script(interpreter: str, extension: str, sign: str, build: str = "") -> Kit:
    driver, worker = (f"jobwire-adapter/{name}.{extension}" for name in ("driver", "worker"))
    files = {Path(path).name: path for path in (driver, worker)}
    start = interpreter.split()
    return Kit(files, [*start, driver], [*start, worker], build, sign)


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
    "java": Kit(
        {f"{name}.java": f"jobwire-adapter/{name}.java" for name in ("Driver", "Worker")},
        ["java", "-cp", f"{_BIN}:{_JARS}", "Driver"],
        ["java", "-cp", f"{_BIN}:{_JARS}", "Worker"],
        f"javac -d {_BIN} -cp '{_JARS}' jobwire-adapter/*.java",
        "pom.xml",
        ("`push`", "`start` and `push`"),
    ),
    "csharp": Kit(
        {
            f"jw-{kind}/{name}": f"jobwire-adapter/jw-{kind}/{name}"
            for kind, source in (("driver", "Driver.cs"), ("worker", "Worker.cs"))
            for name in (source, f"jw-{kind}.csproj")
        },
        ["jobwire-adapter/jw-driver/bin/jw-driver"],
        ["jobwire-adapter/jw-worker/bin/jw-worker"],
        "dotnet build jobwire-adapter/jw-driver && dotnet build jobwire-adapter/jw-worker",
        "*.sln",
        ("`Push`", "`Start` and `Push`"),
    ),
    "php": _script("php", "php", "composer.json"),
    # `mix run` loads the application; it must not compile, because that prints to standard output.
    "elixir": _script("mix run --no-compile", "exs", "mix.exs", "mix compile"),
    "shell": _script("sh", "sh", ""),
    "other": Kit(
        {"README.md": "jobwire-adapter/README.md"},
        ["./jobwire-adapter/driver"],
        ["./jobwire-adapter/worker"],
    ),
}
"""The kits by language. `other` is for all that are not here."""


@dataclass(frozen=True, slots=True)
class AdapterPlan:
    """The choices for a new adapter."""

    directory: Path
    name: str
    language: str
    claims: Sequence[str]
    generation: str


def kit_of(language: str) -> Kit:
    """Return the kit of a language, which may be any."""
    return LANGUAGES.get(language, LANGUAGES["other"])


def guess(directory: Path) -> str | None:
    """Return the probable language of a repository; None if it is unknown."""
    return next(
        (name for name, kit in LANGUAGES.items() if kit.sign and any(directory.glob(kit.sign))),
        None,
    )


def write(plan: AdapterPlan) -> list[Path]:
    """Write the files and return their paths. If one of them exists, write none.

    Raises:
        Usage: A file exists or cannot be written.
    """
    kit = kit_of(plan.language)
    directory = _SKELETONS / (plan.language if plan.language in LANGUAGES else "other")
    texts = {"conformance.toml": _settings(plan, kit)}
    for source, target in kit.files.items():
        texts[target] = (directory / source).read_text("utf-8")
    existing = [name for name in texts if (plan.directory / name).exists()]
    if existing:
        raise Usage(
            f"{plan.directory} already has {', '.join(existing)}, so nothing was written; "
            "move it away, or name another directory"
        )
    written = []
    try:
        for name, text in texts.items():
            path = plan.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            written.append(path)
    except OSError as error:
        raise Usage(f"cannot write {error.filename}: {error.strerror}") from None
    return written


def _settings(plan: AdapterPlan, kit: Kit) -> str:
    made = complete(plan.claims)
    claims = "\n".join(f'  {"" if claim in made else "# "}"{claim}",' for claim in CLAIMS)
    build = f"build = {_text(kit.build)} # run this command before the suite\n" if kit.build else ""
    return f"""\
# The claims of this implementation, for `jobwire conform check`.

[implementation]
name = {_text(plan.name)}
language = {_text(plan.language)}
generation = "{plan.generation}" # the Sidekiq that it is made for: 6.4, 7.3 or 8.1
{build}claims = [ # begin with one claim; when it is met, remove the # from the next one
{claims}
]

# Commands run in the directory of this file.

[driver] # for claims of clients and inspectors
command = {_texts(kit.driver)}

[worker] # for claims of workers and schedulers
command = {_texts(kit.worker)}
# fixed = {{ poll = 5.0, beat = 10.0 }} # seconds, if the worker cannot obey JOBWIRE_POLL or _BEAT
"""


def _text(text: str) -> str:
    # A JSON string is a basic string of TOML, except that TOML escapes DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _texts(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, texts))}]"
