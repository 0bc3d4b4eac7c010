"""Proof that a process of this machine has ended, so that recovery need not wait for its lease.

[REL-27]

A process id is not a proof: the system uses ids again, and containers with the same host name have
their own ids. So each process locks a file that only processes on the same kernel use. The kernel
releases the lock when the last thread and fork of the process has ended. A process that gets the
lock knows that the other has ended. Stopped, suspended and stuck processes keep their locks.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

__all__ = ["LifeLock"]

KEEP_S = 86_400.0  # after which the file of an ended process is useless: its lease ended long ago
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger("jobwire.worker")


class LifeLock:
    """The lock of one process, and the test of the locks of other processes.

    If the file cannot be made, no process is ever known to have ended, and only leases count.

    Args:
        identity: Identity of the process.
        scope: Name of the Redis and namespace; files of another scope do not count.
        directory: Directory of the files; by default a private directory of this user, inside the
            system's directory for temporary files.
        boot_id: The file with the id of this run of the kernel.
    """

    def __init__(
        self, identity: str, *, scope: str, directory: Path | None = None, boot_id: Path = BOOT_ID
    ) -> None:
        # Only files of the running kernel count: on a shared file system, locks of other hosts
        # may be lost while their owners live.
        name = hashlib.sha256(f"{_boot(boot_id)}\n{scope}".encode()).hexdigest()[:16]
        self._prefix = f"{name}-"
        self._name = self._prefix + quote(identity, safe="")
        self._directory = directory or Path(tempfile.gettempdir()) / f"jobwire-{os.getuid()}"
        self._held: int | None = None

    def hold(self) -> None:
        """Take the lock; it lasts until `release` or the end of the process."""
        draft = self._directory / f".{self._name}"
        try:
            self._held = self._create(draft)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Only now it gets the name that other processes test, so they never find it unlocked.
            draft.rename(self._directory / self._name)
        except OSError as error:
            _log.debug("no lock file, so only the lease shows a crash: %s", error)
            with suppress(OSError):
                draft.unlink()
            self._close()
        else:
            self._tidy()

    def release(self) -> None:
        """Release the lock, at the end of an orderly stop."""
        if self._held is not None:
            (self._directory / self._name).unlink(missing_ok=True)
            self._close()
            with suppress(OSError):  # other processes use the directory
                self._directory.rmdir()

    def ended(self) -> list[str]:
        """Return the identities of processes that have certainly ended without `release`."""
        if self._held is None:
            return []
        try:
            names = [name for name in os.listdir(self._directory) if name.startswith(self._prefix)]
        except OSError:
            return []
        return [
            unquote(name.removeprefix(self._prefix))
            for name in names
            if name != self._name and _is_free(self._directory / name)
        ]

    def forget(self, identity: str) -> None:
        """Remove the file of a process that has ended."""
        with suppress(OSError):
            (self._directory / (self._prefix + quote(identity, safe=""))).unlink()

    def _create(self, draft: Path) -> int:
        """Open a new file in the private directory; another process may remove the directory."""
        while True:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            try:
                _check_private(self._directory)
                return os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except FileNotFoundError:
                continue

    def _tidy(self) -> None:
        """Remove old files of all scopes, of workers that were never started again."""
        for name in os.listdir(self._directory):
            path = self._directory / name
            with suppress(OSError):  # its owner or another process has removed it
                if time.time() - path.stat().st_mtime > KEEP_S and _is_free(path):
                    path.unlink()

    def _close(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _boot(boot_id: Path) -> str:
    """Return the id of this run of the kernel; "" on a system without one."""
    try:
        return boot_id.read_text()
    except OSError:
        return ""


def _check_private(directory: Path) -> None:
    """Raise if other users could put files into the directory."""
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a private directory of this user")


def _is_free(path: Path) -> bool:
    """True if a file exists and no process holds its lock."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file).st_nlink > 0  # 0: its owner has just removed it, in an orderly stop
    except OSError:
        return False
    finally:
        os.close(file)
