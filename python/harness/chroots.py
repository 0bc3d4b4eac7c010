"""Real Sidekiq: the chroots that `.ci/sidekiq-chroots` builds, and Ruby processes in them.

A process runs in a mount namespace of its own, where the chroot has a /proc (without one a Sidekiq
worker never appears in `processes`) and one of our directories at /srv. Nothing stays mounted after
the process has ended in any way. The chroot shares the network and the process ids of the machine,
so a worker's pid here is the pid in its identity.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ["CHROOTS", "RubyProcess", "missing"]

CHROOTS = Path(os.environ.get("JOBWIRE_CACHE") or "/var/cache/jobwire") / "sidekiq"
"""Where `.ci/sidekiq-chroots` puts them, one for each version."""

# Arguments: the chroot, the directory for its /srv, the command. `exec` all the way, so that the
# pid that Popen knows is Ruby's.
_ENTER = """
mount -t proc proc "$1/proc" && mount --bind "$2" "$1/srv" || exit
root=$1; shift 2
exec chroot "$root" /usr/bin/env -i -C /srv PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 "$@"
"""


def missing(version: str) -> str | None:
    """Return the reason why this version cannot run here; None if it can."""
    if os.geteuid() != 0:
        return "real Sidekiq runs in a chroot, which needs root: run `make interop` as root"
    if not (CHROOTS / version / ".complete").exists():
        return f"real Sidekiq {version} is not installed: run `make interop`"
    return None


class RubyProcess:
    """A Ruby process in the chroot: its process group, its standard error in a file.

    Args:
        chroot: Of the version.
        command: Program and arguments.
        env: Its environment variables besides PATH, HOME and LANG.
        pipes: True if standard input and output are pipes.
        directory: Its /srv and working directory.
    """

    def __init__(
        self,
        chroot: Path,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        pipes: bool,
        directory: Path,
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # until close()
        pipe = subprocess.PIPE if pipes else None
        namespace = ["unshare", "--mount", "setpriv", "--pdeathsig", "KILL"]
        settings = [f"{name}={value}" for name, value in env.items()]
        # If the thread that starts this process ends, the kernel also ends this process.
        self.popen = subprocess.Popen(
            [
                *namespace,
                "sh",
                "-c",
                _ENTER,
                "sh",
                str(chroot),
                str(directory),
                *settings,
                *command,
            ],
            stdin=pipe or subprocess.DEVNULL,
            stdout=pipe or self._log,
            stderr=self._log,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def log(self) -> str:
        """Return the standard error of the process so far (of a worker, also its output)."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")

    def close(self) -> None:
        """Kill the whole process group and wait for the process."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._log.close()
