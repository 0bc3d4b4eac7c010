"""A crawl of the web page: links and forms of every page that can be reached."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

from starlette.testclient import TestClient

__all__ = ["Form", "Seen", "crawl", "parsed"]

MAX_PAGES = 400
# Values for fields that a person fills in.
TYPED = {"at": "15m", "in": "15m", "when": "15m", "label": "v1"}


@dataclass(frozen=True)
class Form:
    """One way to send a form: its fields, with those of one of its buttons."""

    action: str
    fields: tuple[tuple[str, str], ...]

    @property
    def act(self) -> str:
        return urlsplit(self.action).path.rpartition("/acts/")[2]


@dataclass
class Seen:
    """Pages and forms: path to the status, path to the text, and all forms that post."""

    pages: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    forms: list[Form] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.links: list[str] = []
        self.forms: list[Form] = []
        self._action: str | None = None
        self._fields: list[tuple[str, str]] = []
        self._buttons: list[tuple[str, str, str]] = []
        self._select = ""

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in given:
            self.links.append(urljoin(self.base, urldefrag(given["href"])[0]))
        if tag == "form" and given.get("method", "").lower() == "post":
            self._action, self._fields, self._buttons = given.get("action", self.base), [], []
        if tag == "input" and self._action is not None and "name" in given:
            value = given.get("value", "on" if given.get("type") == "checkbox" else "")
            self._fields.append((given["name"], value or TYPED.get(given["name"], "")))
        if tag == "select":
            self._select = given.get("name", "")
        if tag == "option" and self._action is not None and self._select:
            self._fields.append((self._select, given.get("value", "")))
            self._select = ""
        if tag == "button" and self._action is not None:
            action = urljoin(self.base, given.get("formaction", self._action))
            self._buttons.append((action, given.get("name", ""), given.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form" and self._action is not None:
            for action, name, value in self._buttons:
                chosen = ((name, value),) if name else ()
                self.forms.append(Form(action, (*self._fields, *chosen)))
            self._action = None


def parsed(html: str, base: str) -> tuple[list[str], list[Form]]:
    """Return the links and the forms of a page."""
    reader = _Reader(base)
    reader.feed(html)
    return reader.links, reader.forms


def crawl(client: TestClient, start: Iterable[str], *, prefix: str = "") -> Seen:
    """Follow the links from some pages, and return what was seen.

    No link may lead out of the prefix.
    """
    seen = Seen()
    waiting = deque(start)
    known = set(waiting)
    while waiting and len(seen.pages) < MAX_PAGES:
        path = waiting.popleft()
        answer: Any = client.get(path)
        seen.pages[path] = answer.status_code
        seen.texts[path] = answer.text
        if "text/html" not in answer.headers.get("content-type", ""):
            continue
        links, forms = parsed(answer.text, f"http://x{path}")
        seen.forms += forms
        for link in links:
            parts = urlsplit(link)
            assert parts.netloc == "x", link
            assert parts.path.startswith(f"{prefix}/"), (path, link)
            local = parts.path + (f"?{parts.query}" if parts.query else "")
            if local not in known:
                known.add(local)
                waiting.append(local)
    return seen
