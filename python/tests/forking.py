"""Commands in processes forked from one that has imported jobwire, which costs 0.3 s each time.

Such a process differs from `python -m jobwire` in two things: settings of the interpreter that come
from the environment at its start, and its entry in /proc.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.tiers import note_start

__all__ = ["run"]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["jobwire.cli.loading", "jobwire_conformance.reports.explain"])


def run(
    *arguments: str, cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `jobwire` with these arguments, and wait for its end."""
    note_start(["jobwire", *arguments])
    with tempfile.TemporaryDirectory() as directory:
        streams = Path(directory, "out"), Path(directory, "err")
        process = _context.Process(
            target=_main, args=(arguments, cwd, dict(environment), streams), daemon=False
        )
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired([*arguments], timeout)
        out, err = (stream.read_bytes().decode() for stream in streams)
        status = process.exitcode
        process.close()
    return subprocess.CompletedProcess([*arguments], status, out, err)


def _main(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], streams: Sequence[Path]
) -> None:
    for number, path in enumerate((Path(os.devnull), *streams)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.path[:0] = [str(cwd), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    sys.argv = ["jobwire", *arguments]
    try:
        runpy.run_module("jobwire", run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
