"""Skeletons that `jobwire conform init` writes: made, filled in, and built."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from jobwire_conformance import config
from jobwire_conformance.setup import init
from tests.conformance.gaps import (
    CSHARP_MORE,
    CSHARP_PUSH,
    CSHARP_START,
    ELIXIR_MORE,
    ELIXIR_PUSH,
    ELIXIR_START,
    GO_IMPORTS,
    GO_MORE,
    GO_PUSH,
    GO_START,
    JAVA_MORE,
    JAVA_PUSH,
    JAVA_START,
    JAVASCRIPT_MORE,
    JAVASCRIPT_PUSH,
    JAVASCRIPT_START,
    PHP_MORE,
    PHP_PUSH,
    PHP_START,
    PYTHON_PUSH,
    PYTHON_START,
    RUBY_MORE,
    RUBY_PUSH,
    RUBY_START,
    RUST_MORE,
    RUST_PUSH,
    RUST_START,
)

__all__ = ["CRASHES", "FILLED", "build", "fill", "made", "needs"]

PROGRAMS = {
    "python": ["python3"],
    "ruby": ["ruby"],
    "go": ["go"],
    "rust": ["cargo"],
    "javascript": ["node"],
    "java": ["javac", "java"],
    "csharp": ["dotnet"],
    "php": ["php"],
    "elixir": ["mix"],
    "shell": ["sh"],
}
MONO = ["mcs", "mono"]


def needs(language: str) -> None:
    """Skip the test if the language is not here."""
    for program in PROGRAMS[language]:
        if shutil.which(program) is None:
            if language == "csharp" and all(map(shutil.which, MONO)):
                return
            pytest.skip(f"{program} is not on PATH")


def made(directory: Path, language: str, *claims: str) -> config.Config:
    """Write the skeletons of a language; return their settings."""
    init.write(init.AdapterPlan(directory, 'a "name"', language, claims or ("client/core",), "7.3"))
    return config.load(directory)


def build(language: str, directory: Path) -> None:
    """Build the skeletons of a language, in a project of this language."""
    line = init.LANGUAGES[language].build
    environment: dict[str, str] = {}
    if language == "go":
        (directory / "go.mod").write_text("module example.com/adapter\n")
        environment = {"GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    elif language == "rust":
        (directory / "Cargo.toml").write_text(
            '[package]\nname = "adapter"\nversion = "0.1.0"\nedition = "2021"\n'
        )
        (directory / "src").mkdir()
        (directory / "src" / "lib.rs").write_text("")
        environment = {"CARGO_NET_OFFLINE": "true"}
    elif language == "elixir":
        (directory / "mix.exs").write_text(_MIX)
    elif language == "csharp" and shutil.which("dotnet") is None:
        line = " && ".join(_mono(directory, name) for name in ("driver", "worker"))
    if line:
        done = subprocess.run(
            line,
            shell=True,
            cwd=directory,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout + done.stderr


_MIX = """\
defmodule Adapter.MixProject do
  use Mix.Project
  def project, do: [app: :adapter, version: "0.1.0"]
  def application, do: [extra_applications: [:logger, :crypto]]
end
"""


def _mono(directory: Path, name: str) -> str:
    """Return the command that builds a program with Mono, and write a program that starts it."""
    there = directory / "jobwire-adapter" / f"jw-{name}"
    program = there / "bin" / f"jw-{name}"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec mono "{program}.exe" "$@"\n')
    program.chmod(0o755)
    return f"mcs -warnaserror- -out:{program}.exe {there}/{name.capitalize()}.cs"


def fill(path: Path, gap: str, *written: str, more: str = "", before: str = "") -> None:
    """Replace the gaps by these texts, in order."""
    text = path.read_text()
    assert text.count(gap) == len(written), (path, text.count(gap))
    for each in written:
        text = text.replace(gap, each, 1)
    path.write_text(before + text + more)


def _python(there: Path) -> None:
    gap = "    raise NotFilledIn\n"
    fill(there / "driver.py", gap, PYTHON_PUSH)
    fill(there / "worker.py", gap, PYTHON_START, PYTHON_PUSH)


def _ruby(there: Path) -> None:
    gap = "  raise NotFilledIn\n"
    fill(there / "driver.rb", gap, RUBY_PUSH, before=RUBY_MORE)
    fill(there / "worker.rb", gap, RUBY_START, RUBY_PUSH, before=RUBY_MORE)


def _javascript(there: Path) -> None:
    gap = "  throw new NotFilledIn();\n"
    fill(there / "driver.mjs", gap, JAVASCRIPT_PUSH, more=JAVASCRIPT_MORE)
    fill(there / "worker.mjs", gap, JAVASCRIPT_START, JAVASCRIPT_PUSH, more=JAVASCRIPT_MORE)


def _go(there: Path) -> None:
    driver, worker = (there / f"jw-{which}" / "main.go" for which in ("driver", "worker"))
    given = "\tgiven := r.Job\n"
    fill(driver, '\treturn "", errNotYet\n', f"{given}{GO_PUSH}\treturn jid, err\n", more=GO_MORE)
    decoded = "\tvar given map[string]json.RawMessage\n\tjson.Unmarshal(job, &given)\n"
    gaps = GO_START, f"{decoded}{GO_PUSH}\treturn err\n"
    fill(worker, "\treturn errNotYet\n", *gaps, more=GO_MORE)
    for path, more in ((driver, GO_IMPORTS), (worker, (*GO_IMPORTS, "os/signal", "syscall"))):
        text = path.read_text()
        lines = "".join(f'\t"{each}"\n' for each in {*more} if f'\t"{each}"\n' not in text)
        path.write_text(text.replace("import (\n", f"import (\n{lines}", 1))


def _rust(there: Path) -> None:
    # Cargo looks for examples there.
    driver, worker = (there.parent / "examples" / f"jw_{w}.rs" for w in ("driver", "worker"))
    gap = "    let _ = request;\n    Err(Problem::NotYet)\n"
    given = '    let job = &request[request.find(r#""job":"#).unwrap() + 6..request.len() - 1];\n'
    fill(driver, gap, f"{given}{RUST_PUSH}    Ok(jid)\n", more=f"{RUST_MORE}use std::env;\n")
    fill(worker, '    Err("fill in `start`".to_string())\n', RUST_START, more=RUST_MORE)
    gap = '    Err(JobwireError(format!("fill in `push` for {job}")))\n'
    fill(worker, gap, f"{RUST_PUSH}    Ok(())\n")


def _java(there: Path) -> None:
    gap = "        throw new NotFilledIn();\n"
    line = 'request.substring(request.indexOf("\\"job\\":") + 6, request.length() - 1)'
    push = JAVA_PUSH.replace("JOB", line)
    fill(there / "Driver.java", gap, f"{push}        return jid;\n", more=JAVA_MORE)
    push = JAVA_PUSH.replace("JOB", "job.toString()")
    fill(there / "Worker.java", gap, JAVA_START, push, more=JAVA_MORE.replace("Redis", "Wire"))
    worker = there / "Worker.java"
    worker.write_text(worker.read_text().replace(" Redis.", " Wire.").replace("(Redis.", "(Wire."))


def _csharp(there: Path) -> None:
    gap = "        throw new NotFilledIn();\n"
    line = 'request.Substring(request.IndexOf("\\"job\\":") + 6).TrimEnd(\'}\') + "}"'
    push = CSHARP_PUSH.replace("JOB", line)
    driver, worker = there / "jw-driver" / "Driver.cs", there / "jw-worker" / "Worker.cs"
    fill(driver, gap, f"{push}        return jid;\n", more=CSHARP_MORE)
    fill(worker, gap, CSHARP_START, CSHARP_PUSH.replace("JOB", "job"), more=CSHARP_MORE)


def _php(there: Path) -> None:
    gap = "    throw new NotFilledIn();\n"
    fill(there / "driver.php", gap, f"{PHP_PUSH}    return $jid;\n", more=PHP_MORE)
    fill(there / "worker.php", gap, PHP_START, PHP_PUSH, more=PHP_MORE)


def _elixir(there: Path) -> None:
    gap = "    throw(:not_filled_in)\n"
    line = '    [_, given] = Regex.run(~r/"job":(.*)\\}$/, String.trim(request))\n'
    driver, worker = there / "driver.exs", there / "worker.exs"
    for path in (driver, worker):
        text = path.read_text().replace("push(_request)", "push(request)")
        path.write_text(text.replace("def push(_job)", "def push(job)"))
    fill(driver, gap, f"{line}{ELIXIR_PUSH}    jid\n", before=ELIXIR_MORE)
    given = "    given = json(job)\n"
    fill(worker, gap, ELIXIR_START, f"{given}{ELIXIR_PUSH}", before=ELIXIR_MORE)


FILLED = {
    "python": _python,
    "ruby": _ruby,
    "go": _go,
    "rust": _rust,
    "javascript": _javascript,
    "java": _java,
    "csharp": _csharp,
    "php": _php,
    "elixir": _elixir,
}
"""Functions that fill the gaps of an adapter in its directory `jobwire-adapter`."""

CRASHES = {
    "python": (
        "jobwire-adapter/driver.py",
        "    raise NotFilledIn\n",
        "    return job['queue'].none()\n",
        "none",
    ),
    "ruby": ("jobwire-adapter/driver.rb", "  raise NotFilledIn\n", "  job['queue'].none\n", "none"),
    "go": (
        "jobwire-adapter/jw-driver/main.go",
        '\treturn "", errNotYet\n',
        '\tvar none map[string]int\n\tnone["x"] = 1\n\treturn "", errNotYet\n',
        "nil map",
    ),
    "rust": (
        "examples/jw_driver.rs",
        "    Err(Problem::NotYet)\n",
        '    if request.len() > 1 {\n        panic!("none of {}", 1);\n    }\n'
        "    Err(Problem::NotYet)\n",
        "none of 1",
    ),
    # Outside of the call, as by a connection in the background.
    "javascript": (
        "jobwire-adapter/driver.mjs",
        "  throw new NotFilledIn();\n",
        "  setTimeout(() => job.queue.none(), 0);\n  await new Promise(() => {});\n",
        "none",
    ),
    "java": (
        "jobwire-adapter/Driver.java",
        "        throw new NotFilledIn();\n",
        '        if (request != null) throw new StackOverflowError("none \\"here\\"");\n'
        "        throw new NotFilledIn();\n",
        'StackOverflowError: none "here"',
    ),
    "csharp": (
        "jobwire-adapter/jw-driver/Driver.cs",
        "        throw new NotFilledIn();\n",
        '        if (request != null) throw new InvalidOperationException("none \\"here\\"");\n'
        "        throw new NotFilledIn();\n",
        'InvalidOperationException: none "here"',
    ),
    "php": (
        "jobwire-adapter/driver.php",
        "    throw new NotFilledIn();\n",
        "    return $job->queue->none();\n",
        "none() on null",
    ),
    "elixir": (
        "jobwire-adapter/driver.exs",
        "    throw(:not_filled_in)\n",
        "    spawn_link(fn -> exit(:other) end)\n    if true, do: exit(:none)\n"
        "    throw(:not_filled_in)\n",
        "none",
    ),
    "shell": (
        "jobwire-adapter/driver.sh",
        "  echo 'driver.sh: fill in `push`' >&2\n  return 64\n",
        "  exit 7\n",
        "status 7",
    ),
}
"""File, its gap, code for it that fails with a job whose queue is null, a part of the message."""
