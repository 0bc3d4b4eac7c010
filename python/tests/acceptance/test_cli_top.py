"""`jobwire top` in a real terminal: keys, an action, its end, and its errors."""

from __future__ import annotations

import fcntl
import getpass
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.servers import Server, wait_until
from jobwire.ops import Operations
from tests.samples import DUE, failure, payload
from tests.workers import environment, heeding_hup, jobwire

CONTROL = re.compile(r"\x1b\[[0-9;:?<>=]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]")


class Terminal:
    """`jobwire top` on a pseudo-terminal of 80x24."""

    def __init__(self, *words: str, **variables: str) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.modes = termios.tcgetattr(self.theirs)
        with heeding_hup():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jobwire", "top", "--interval", "0.2", *words],
                env=environment(TERM="xterm-256color", **variables),
                stdin=self.theirs,
                stdout=self.theirs,
                stderr=self.theirs,
                start_new_session=True,
            )
        self.raw = ""

    def read(self) -> None:
        """Read the available output."""
        while select.select([self._ours], [], [], 0.02)[0]:
            self.raw += os.read(self._ours, 65_536).decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """Everything that was drawn, without control sequences."""
        return CONTROL.sub("", self.raw)

    def until(self, *words: str) -> None:
        """Wait until all words were drawn since the last key."""

        def there() -> bool:
            self.read()
            assert self.process.poll() is None, self.text
            return all(word in self.text for word in words)

        wait_until(there, 60, what=f"{words} in the terminal")

    def press(self, keys: str) -> None:
        """Press keys, and forget what was drawn before."""
        self.read()
        self.raw = ""
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        """Wait for the end; return the exit status."""

        def ended() -> bool:
            self.read()
            return self.process.poll() is not None

        wait_until(ended, 60, what="the end of jobwire top")
        self.read()
        return self.process.returncode

    def restored(self) -> bool:
        """True if the modes are those of before, and the other screen and the mouse are left."""
        modes = termios.tcgetattr(self.theirs) == self.modes
        left = all(word in self.raw for word in ("\x1b[?1049l", "\x1b[?25h", "\x1b[?1000l"))
        return modes and left

    def close(self) -> None:
        """Kill it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)
        os.close(self._ours)
        os.close(self.theirs)


@contextmanager
def terminal(*words: str, **variables: str) -> Iterator[Terminal]:
    made = Terminal(*words, **variables)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def url(server: Server) -> str:
    """Return the URL of a server with a few retries."""
    client = server.client()
    client.set("stat:processed", 1_234)
    client.zadd("retry", {payload("RetriedJob", f"r{n}", **failure()): DUE + n for n in range(3)})
    return server.url


def test_it_shows_acts_and_leaves_the_terminal_as_it_was(server: Server, url: str) -> None:
    with terminal("--redis", url) as screen:
        screen.until("Overview", "1,234", url)
        screen.press("4")
        screen.until("RetriedJob", "1-3 of 3")
        screen.press("r")
        wait_until(lambda: server.client().zcard("retry") == 2)
        screen.press("?")
        screen.until("Keys of Retries", "Retry all that match")
        screen.press("\x1b")
        # Only then the next key: otherwise both arrive as alt+q. The help covers these headings,
        # but not the message of the action, which also names the job.
        screen.until("class", "error")
        screen.press("q")
        assert screen.end() == 0
        assert screen.restored()
    with Operations(url) as operations:
        (entry,) = operations.journal()
    assert (entry.act, entry.target) == ("retry", "r0 in retry")
    assert entry.person.startswith(f"{getpass.getuser()}@")


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, "\x03", "\x11"])
def test_each_end_leaves_the_terminal_as_it_was(url: str, how: int | str) -> None:
    with terminal("--redis", url, "--read-only", NO_COLOR="1") as screen:
        screen.until("Overview", "(viewer)")
        if isinstance(how, str):
            screen.press(how)
        else:
            screen.process.send_signal(how)
        assert screen.end() == 0
        assert screen.restored()


def test_without_a_terminal_it_says_so(url: str) -> None:
    done = jobwire("top", "--redis", url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "jobwire: jobwire top: needs a terminal; 'jobwire inspect' does without one\n"
    )


def test_without_the_extra_it_names_the_command_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['textual'] = None\n"
        "from jobwire.cli import main; sys.argv = ['jobwire', 'top']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr == "jobwire: jobwire top: needs textual: pip install 'jobwire[tui]'\n"
