"""Proof that a process of this machine has ended, so that nobody has to wait for its lease.

[REL-11]

A process number proves nothing: numbers are used again, and containers of one host name have
numbers of their own. So each process holds a lock on a file that only processes on the same
kernel see, and the kernel drops it when the last of the process's threads and forks is gone:
whoever gets the lock knows. Stopped, suspended and hanging processes keep theirs.
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

KEEP = 86_400.0  # seconds after which nobody needs what a process left: its lease ended long ago
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger("jobwire.worker")


class LifeLock:
    """The lock of one process, and a look at those of others.

    Where no such file can be had, nobody is ever known to have ended, and leases decide.

    Args:
        identity: Whose.
        scope: What its work is about: names of another scope are not looked at.
        directory: Where the files are; by default one of this user's in the system's directory
            for temporary files.
        boot_id: The file that names this run of the kernel.
    """

    def __init__(
        self, identity: str, *, scope: str, directory: Path | None = None, boot_id: Path = BOOT_ID
    ) -> None:
        # Of the running kernel only: on a shared file system, locks of other hosts may be lost
        # while their owners live.
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
            # Only now under the name that others look at: they never find it unlocked.
            draft.rename(self._directory / self._name)
        except OSError as error:
            _log.debug("no lock file, so a crash is noticed by its lease: %s", error)
            with suppress(OSError):
                draft.unlink()
            self._close()
        else:
            self._tidy()

    def release(self) -> None:
        """Give the lock up, at the end of an orderly stop."""
        if self._held is not None:
            (self._directory / self._name).unlink(missing_ok=True)
            self._close()
            with suppress(OSError):  # others are using it
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
        """Remove what a process that has ended left behind."""
        with suppress(OSError):
            (self._directory / (self._prefix + quote(identity, safe=""))).unlink()

    def _create(self, draft: Path) -> int:
        """Open a new file in the private directory, which another process may just remove."""
        while True:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            try:
                _check_private(self._directory)
                return os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            except FileNotFoundError:
                continue

    def _tidy(self) -> None:
        """Remove old files of all scopes, of workers that nobody came after."""
        for name in os.listdir(self._directory):
            path = self._directory / name
            with suppress(OSError):  # its owner, or another tidy one, was quicker
                if time.time() - path.stat().st_mtime > KEEP and _is_free(path):
                    path.unlink()

    def _close(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _boot(boot_id: Path) -> str:
    """Return what tells this run of the kernel from others, where there is such a thing."""
    try:
        return boot_id.read_text()
    except OSError:
        return ""


def _check_private(directory: Path) -> None:
    """Raise if others than this user could put files there."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{directory} is no private directory of this user")


def _is_free(path: Path) -> bool:
    """Whether nobody holds the lock on a file that is still there."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(file).st_nlink > 0  # else its owner was just leaving in good order
    except OSError:
        return False
    finally:
        os.close(file)
