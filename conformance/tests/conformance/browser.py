"""A real headless browser, driven through a pipe by the DevTools protocol."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Self

__all__ = ["Browser", "program"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def program() -> str | None:
    """Return the path of an installed browser; None if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser with one page.

    Args:
        profile: An empty directory for it.
    """

    def __init__(self, profile: Path) -> None:
        browser = program()
        assert browser is not None
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def wire() -> None:
            # The browser reads from 3 and writes to 4. These numbers may be in use.
            read, write = os.dup(to_read), os.dup(to_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self._process = subprocess.Popen(
            [
                *(browser, "--headless", "--remote-debugging-pipe", "--disable-gpu"),
                *("--no-first-run", "--disable-dev-shm-usage", f"--user-data-dir={profile}"),
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=wire,
            close_fds=False,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a DevTools method and return its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            said = self._receive()
            if said.get("id") == self._number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result
            self._events.append(said)

    def open(self, page: Path, *, width: int, dark: bool, script: bool = True) -> None:
        """Load a file."""
        self._events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Page.navigate", url=page.as_uri())
        self._wait_for_load()

    def reload(self) -> None:
        """Load the page again, by its present address."""
        self._events.clear()
        self.call("Page.reload")
        self._wait_for_load()

    def _wait_for_load(self) -> None:
        while not any(event.get("method") == "Page.loadEventFired" for event in self._events):
            self._events.append(self._receive())

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression in the page is true."""
        deadline = time.monotonic() + 30
        while not self.run(expression):
            assert time.monotonic() < deadline, expression
            time.sleep(0.02)

    def key(self, key: str, code: int) -> None:
        """Press a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def complaints(self) -> list[str]:
        """Return the messages of the console, and the network requests of the page."""
        self.run("1")
        messages = []
        for event in self._events:
            params = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded":
                    messages.append(json.dumps(params)[:500])
                case "Network.requestWillBeSent":
                    url = params["request"]["url"]
                    if not url.startswith(("file:", "data:")):
                        messages.append(f"asked for {url}")
        return messages

    def _receive(self) -> dict[str, Any]:
        deadline = time.monotonic() + 60
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "no answer from the browser"
            read = os.read(self._read, 1 << 16)
            assert read, "the browser has ended"
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\0")
        said: dict[str, Any] = json.loads(line)
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._read)
