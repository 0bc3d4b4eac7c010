"""`conformance.toml`: the claims of an implementation and the commands that start it."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from jobwire_conformance.data import (
    CLAIMS,
    DEFAULT_GENERATION,
    GENERATIONS,
    OFFERS,
    ROBUST,
    claims_of,
    required_claims,
)
from jobwire_conformance.errors import Usage

__all__ = [
    "NAME",
    "Config",
    "DriverProgram",
    "Generation",
    "WorkerProgram",
    "expanded",
    "load",
    "times",
]

Generation = Literal["6.4", "7.3", "8.1"]
NAME = "conformance.toml"
"""Name of the file."""
OLD_NAME = "jobwire.toml"
"""Its former name. Today this is the name of a worker's settings."""
_ROLES_OF_WORKERS = ("worker", "scheduler")


@dataclass(frozen=True, slots=True)
class DriverProgram:
    """The command that starts the driver, and its mode."""

    command: Sequence[str]
    oneshot: bool = False
    timeout: float = 30.0  # seconds for one answer
    garble: Callable[[bytes], bytes] = bytes  # a mutant's change to each answer


@dataclass(frozen=True, slots=True)
class WorkerProgram:
    """The command that starts a worker, and its fixed delays."""

    command: Sequence[str]
    fixed: Mapping[str, float] = field(default_factory=dict)  # knob -> seconds
    timeout: float = 30.0  # seconds until it fetches
    signals: Mapping[str, str] = field(default_factory=dict)  # a mutant's exchange of signals


@dataclass(frozen=True, slots=True)
class Config:
    """The content of `conformance.toml`, checked."""

    path: Path
    name: str
    claims: Sequence[str]
    unasked: Sequence[str] = ()  # claims of the file that this run does not examine
    generation: Generation = "8.1"
    offers: Sequence[str] = ()
    language: str | None = None
    source: str | None = None
    build: str = ""  # the command that builds driver and worker, for messages
    home: str | None = None  # address of its page
    prefix: str = ""
    driver: DriverProgram | None = None
    worker: WorkerProgram | None = None

    @property
    def times(self) -> Literal[7, 8]:
        """The form of the times that it writes."""
        return times(self.generation)

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables for its programs that tell the namespace; none without a namespace."""
        return {"JOBWIRE_NAMESPACE": self.prefix} if self.prefix else {}


def times(generation: str) -> Literal[7, 8]:
    """Return the form of times of a generation: 7, float seconds, or 8, integer milliseconds."""
    return 8 if generation == "8.1" else 7


def expanded(claims: Iterable[str]) -> list[str]:
    """Return the claims with those that they include: a robust claim includes the interop one."""
    pairs = ((claim.removesuffix(ROBUST), claim) for claim in claims)
    return [*dict.fromkeys(claim for pair in pairs for claim in pair)]


def load(path: Path) -> Config:
    """Return the checked configuration.

    Raises:
        Usage: The file is missing or wrong.
    """
    if path.is_dir():
        path = path / NAME
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if _is_settings(old := path.with_name(OLD_NAME)):
            raise Usage(
                f"{path} does not exist, but {old} has a section [implementation]; rename that "
                f"file to {NAME}, because {OLD_NAME} is the name of a worker's settings"
            ) from None
        raise Usage(
            f"{path} does not exist; it holds the claims of the implementation and the commands "
            "that start its programs: jobwire conform init writes one, with an adapter to fill in"
        ) from None
    except (OSError, ValueError) as error:
        raise Usage(f"{path}: {error}") from None
    if path.name == OLD_NAME and "implementation" in content:
        raise Usage(
            f"{path}: the suite's settings have the name {NAME}; rename this file, because "
            f"{OLD_NAME} is the name of a worker's settings"
        )
    top = _Table(path, "", content)
    about = top.table("implementation", required=True)
    config = Config(
        path=path.resolve(),
        name=about.text("name"),
        claims=_claims(about),
        generation=cast(Generation, about.one_of("generation", GENERATIONS, DEFAULT_GENERATION)),
        offers=_offers(about),
        language=about.text("language", optional=True) or None,
        source=about.text("source", optional=True) or None,
        build=about.text("build", optional=True),
        home=_home(about),
        prefix=about.text("prefix", optional=True),
        driver=_driver(top),
        worker=_worker(top),
    )
    about.done()
    top.done()
    for claim in config.claims:
        if claim not in claims_of(config.generation):
            raise Usage(f"{path}: generation {config.generation} has no claim {claim}; remove it")
        if missing := [name for name in required_claims(claim) if name not in config.claims]:
            raise Usage(
                f"{path}: the claim {claim} requires {', '.join(missing)}; add them to claims"
            )
    roles = {claim.partition("/")[0] for claim in config.claims}
    for role in sorted(roles):
        section = "worker" if role in _ROLES_OF_WORKERS else "driver"
        if getattr(config, section) is None:
            raise Usage(f"{path}: the claims {role}/* need a section [{section}] with a command")
    return config


def _is_settings(path: Path) -> bool:
    """Return whether a file exists and holds the suite's settings."""
    try:
        return "implementation" in tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False


def _claims(about: _Table) -> tuple[str, ...]:
    claims = about.texts("claims")
    for claim in claims:
        if claim not in CLAIMS:
            raise about.wrong("claims", f"unknown claim {claim!r}; {_hint(claim, CLAIMS)}")
    return tuple(expanded(claims))


def _home(about: _Table) -> str | None:
    """Return the address of a page; reports link it, so only a web address counts."""
    home = about.text("home", optional=True)
    if home and not home.startswith(("https://", "http://")):
        raise about.wrong("home", f"{home!r}; expected an address that begins with https://")
    return home or None


def _offers(about: _Table) -> tuple[str, ...]:
    offers = about.texts("offers", optional=True)
    for offer in offers:
        if offer not in OFFERS:
            raise about.wrong("offers", f"unknown offer {offer!r}; {_hint(offer, OFFERS)}")
    return tuple(dict.fromkeys(offers))


def _hint(word: str, known: Sequence[str]) -> str:
    """Return the known word nearest to an unknown one, as a question, or all known words."""
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"


def _driver(top: _Table) -> DriverProgram | None:
    if (table := top.table("driver")) is None:
        return None
    driver = DriverProgram(
        command=table.texts("command"),
        oneshot=table.one_of("mode", ("loop", "oneshot"), "loop") == "oneshot",
        timeout=table.seconds("timeout", 30.0),
    )
    table.done()
    return driver


def _worker(top: _Table) -> WorkerProgram | None:
    if (table := top.table("worker")) is None:
        return None
    knobs = table.table("fixed")
    fixed = {}
    if knobs is not None:
        for knob in ("poll", "beat", "grace"):
            if seconds := knobs.seconds(knob, 0.0):
                fixed[knob] = seconds
        knobs.done()
    worker = WorkerProgram(
        command=table.texts("command"), fixed=fixed, timeout=table.seconds("timeout", 30.0)
    )
    table.done()
    return worker


class _Table:
    """A table of the file. It records the keys that are read."""

    def __init__(self, path: Path, name: str, values: Mapping[str, Any]) -> None:
        self._path = path
        self._name = name
        self._values = dict(values)
        self._read: list[str] = []

    def wrong(self, key: str, problem: str) -> Usage:
        place = f"[{self._name}] {key}" if self._name else f"[{key}]"
        return Usage(f"{self._path}: {place}: {problem}")

    def done(self) -> None:
        """Refuse keys that were not read: a misspelt key would have no effect, silently."""
        for key in self._values:
            raise self.wrong(key, f"unknown key; {_hint(key, self._read)}")

    def _take(self, key: str) -> Any:
        self._read.append(key)
        return self._values.pop(key, None)

    def table(self, key: str, *, required: bool = False) -> Any:
        value = self._take(key)
        if value is None and not required:
            return None
        if not isinstance(value, dict):
            raise self.wrong(key, "section is missing" if value is None else "must be a section")
        name = f"{self._name}.{key}" if self._name else key
        return _Table(self._path, name, value)

    def text(self, key: str, *, optional: bool = False) -> str:
        value = self._take(key)
        if value is None and optional:
            return ""
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"{_shown(value)}; expected a text that is not empty")
        return value

    def texts(self, key: str, *, optional: bool = False) -> list[str]:
        value = self._take(key)
        if value is None and optional:
            return []
        if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
            raise self.wrong(key, f"{_shown(value)}; expected a list of texts that is not empty")
        return value

    def one_of(self, key: str, known: Sequence[object], default: object) -> object:
        value = self._take(key)
        if value is None:
            return default
        if value not in known or isinstance(value, bool):
            raise self.wrong(key, f"{value!r}; expected one of {', '.join(map(repr, known))}")
        return value

    def seconds(self, key: str, default: float) -> float:
        value = self._take(key)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e6:
            raise self.wrong(key, f"{value!r}; expected seconds above 0")
        return float(value)


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)
