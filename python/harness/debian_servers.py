"""The Redis and Valkey servers of three Debian releases, from the chroots of `make interop`.

They need neither root nor the chroot: the loader of their own release starts them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.chroots import CHROOTS

_LAUNCHER = """#!/bin/sh
exec {loader} --library-path {libraries} {program} "$@"
"""


class DebianServer(NamedTuple):
    """One server.

    Attributes:
        version: The begin of its version.
        chroot: The name of the chroot that holds it.
        kind: "redis" or "valkey".
    """

    version: str
    chroot: str
    kind: str

    @property
    def name(self) -> str:
        """Its name in the ids of tests; the last chroot holds Debian's testing suite."""
        return f"{self.kind}-{self.version}{'-testing' if self.chroot == '8.1.7' else ''}"

    @property
    def program(self) -> Path:
        return CHROOTS / self.chroot / "usr" / "bin" / f"{self.kind}-server"

    def launcher(self, directory: Path) -> str:
        """Write a program that starts it on this system; return its path."""
        root = CHROOTS / self.chroot
        [loader] = [*root.glob("lib64/ld-linux*.so.*"), *root.glob("lib/ld-linux*.so.*")][:1]
        libraries = ":".join(str(found) for found in root.glob("usr/lib/*-linux-gnu*"))
        path = directory / self.name
        text = _LAUNCHER.format(loader=loader, libraries=libraries, program=self.program)
        path.write_text(text, "utf-8")
        path.chmod(0o755)
        return str(path)


SERVERS = [
    DebianServer("7.0", "6.4.1", "redis"),
    DebianServer("8", "7.3.2", "redis"),
    DebianServer("8", "7.3.2", "valkey"),
    DebianServer("8", "8.1.7", "redis"),
    DebianServer("9", "8.1.7", "valkey"),
]
