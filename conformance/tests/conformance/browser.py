"""A real headless browser with one page, for files that need no server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Self

from playwright.sync_api import sync_playwright

from tests.browser.serving import OPTIONS

__all__ = ["Browser", "program"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def program() -> str | None:
    """Return the path of an installed browser; None if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """A browser; `open` closes the page before.

    Attributes:
        complaints: Messages of the console, errors of scripts, and requests to other hosts.
    """

    def __init__(self) -> None:
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=program(), args=OPTIONS)
        self.complaints: list[str] = []

    def open(self, file: Path, *, width: int, dark: bool, script: bool = True) -> None:
        """Load a file."""
        for old in self._browser.contexts:
            old.close()
        self.complaints.clear()
        self.page = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
        ).new_page()
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._look_at(request.url))
        self.page.goto(file.as_uri())

    def _look_at(self, url: str) -> None:
        if not url.startswith(("file:", "data:")):
            self.complaints.append(f"asked for {url}")

    def run(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        return self.page.evaluate(expression)

    def until(self, expression: str) -> None:
        """Wait until an expression in the page is true."""
        self.page.wait_for_function(expression)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.close()
        self._playwright.stop()
