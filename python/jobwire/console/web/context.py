"""One request: the visitor, the parameters, and the helpers of pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, quote, unquote, unquote_to_bytes, urlencode

from msgspec.structs import replace
from starlette.requests import Request

from jobwire.console.ops.operations import Operations
from jobwire.console.ops.roles import Action
from jobwire.console.web.access import Visitor
from jobwire.console.web.jobs import JobView, job_view
from jobwire.console.web.labels import journal_target
from jobwire.console.web.redaction import HIDDEN, hide_arguments
from jobwire.errors import ConfigError
from jobwire.inspect.entry import Entry, SetName
from jobwire.protocol.progress import JobProgress

if TYPE_CHECKING:
    from jobwire.console.web.site import Site

__all__ = ["Absent", "Page", "Redirect", "RequestContext"]

T = TypeVar("T")


class Absent(Exception):
    """The request names something that does not exist; the text says what."""


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: a template with its values."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Redirect:
    """An answer after an action: the path of a page, which shows the notice."""

    path: str
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """One request.

    Attributes:
        request: The request.
        site: State that all requests share.
        visitor: The person who asks.
        operations: The command layer, for this visitor.
        form: Names and values of the form, in order; empty unless it is an action.
        now: Epoch seconds.
        session: The visitor's cookie, from which the token of the forms is made.
        notice: The result of the last action in words, or "".
        updating: True if only the live part of the page is made again.
    """

    request: Request
    site: Site
    visitor: Visitor
    operations: Operations
    form: Sequence[tuple[str, str]] = ()
    now: float
    session: str
    notice: str = ""
    updating: bool = False

    # -- the request

    @property
    def _path(self) -> str:
        # Not `request.url.path`, which ends at a question mark of a name.
        path: str = self.request.scope["path"]
        return path

    @property
    def root(self) -> str:
        """Path under which the application is mounted, without a slash at its end."""
        root: str = self.request.scope.get("root_path", "")
        return root

    @property
    def files(self) -> str:
        """Path of the files of the page; the page of all Redis uses those of the first."""
        of_all = self.site.redis_names and not self.site.name
        return f"{self.root}/{self.site.redis_names[0]}" if of_all else self.root

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the address; of several with one name, the last."""
        return dict(_pairs(self.request.scope.get("query_string", b"")))

    def asked(self, name: str) -> str:
        """Return a parameter of the address without blanks around it, or ""."""
        return self.query.get(name, "").strip()

    def number(self, name: str, default: int, *, most: int) -> int:
        """Return a parameter of the address that is a number from 1 to `most`.

        Raises:
            ConfigError: It is something else.
        """
        text = self.asked(name)
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= most:
            raise ConfigError(f"{name}: {text!r} is not a number from 1 to {most}")
        return int(text)

    def name(self) -> str:
        """Return the rest of the path after the first part, like the queue in `/queues/mails`.

        Names of Redis are bytes; those that are not UTF-8 become surrogates.
        """
        # Servers of WSGI have no raw path.
        raw: bytes = self.request.scope.get("raw_path") or _quoted(self._path)
        prefix = quote(self.root).encode()
        rest = raw.partition(b"?")[0].removeprefix(prefix).lstrip(b"/")
        return _unquoted(rest.partition(b"/")[2])

    def field(self, name: str) -> str:
        """Return a value of the form, or of its address.

        Browsers change line breaks and bytes that are not UTF-8 in forms, but not in addresses.

        Raises:
            ConfigError: Neither has it.
        """
        for key, value in (*self.form, *self.query.items()):
            if key == name:
                return value
        raise ConfigError(f"{name}: missing in the form")

    def fields(self, name: str) -> list[str]:
        """Return all values of the form with a name."""
        return [value for key, value in self.form if key == name]

    # -- the answer

    @property
    def token(self) -> str:
        """The token of the forms of the page."""
        return self.site.guard.token(self.session, self.visitor.person)

    def path(self, *parts: str, **query: Any) -> str:
        """Return the path of a page: its parts are quoted, and parameters without value left out.

        `path("queues", "mails", page=2)` is `/jobs/queues/mails?page=2` in a mount at `/jobs`.
        """
        joined = "/".join(quote(part, safe="", errors="surrogateescape") for part in parts)
        given = {name: value for name, value in query.items() if value not in (None, "")}
        encoded = urlencode(given, errors="surrogateescape")
        return f"{self.root}/{joined}" + (f"?{encoded}" if encoded else "")

    def here(self, **query: Any) -> str:
        """Return the path of this page with other parameters; None leaves one out."""
        parts = self._path.removeprefix(self.root).strip("/")
        first, _, _ = parts.partition("/")
        names = [self.name()] if "/" in parts else []
        return self.path(*filter(None, [first]), *names, **{**self.query, **query})

    def bare(self) -> str:
        """Return the path of this page without parameters."""
        return self.here(**dict.fromkeys(self.query))

    def elsewhere(self, name: str) -> str:
        """Return the first page of another Redis of the application; of all, if it is ""."""
        base = self.root.rpartition("/")[0] if self.site.name else self.root
        return f"{base}/{name}/" if name else f"{base}/"

    def is_in(self, part: str) -> bool:
        """Return True if this page is the one of a path, or below it."""
        here = self._path.removeprefix(self.root).strip("/")
        return here == part or bool(part and here.startswith(f"{part}/"))

    def back(self) -> str:
        """Return the page that the form names as the one to return to: always one of ours."""
        asked = next((value for key, value in self.form if key == "back"), "")
        ours = asked.startswith(f"{self.root}/") and not asked.startswith("//")
        steps = {unquote(part) for part in asked.partition("?")[0].split("/")}
        plain = asked.isprintable() and "\\" not in asked and not steps & {".", ".."}
        return asked if ours and plain else self.path()

    def may(self, act: Action) -> bool:
        """Return True if the visitor's role allows an action."""
        return self.operations.permits(act)

    def job(self, entry: Entry) -> JobView:
        """Return what the visitor sees of a job."""
        return job_view(entry, self.visitor, self.site.redact, self.site.guard.digest_key)

    def entry_at(self, place: SetName, score: float, jid: str, digest: str) -> Entry | None:
        """Return an entry of a set that a page or a form names; see `Operations.entry_at`."""
        return self.operations.entry_at(place, score, jid, digest, self.site.guard.digest_key)

    def job_near(self, queue: str, position: int, digest: str) -> Entry | None:
        """Return a job of a queue that a page or a form names; see `Operations.job_near`."""
        return self.operations.job_near(queue, position, digest, self.site.guard.digest_key)

    def visible_fields(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return those of the fields of a payload, or of values that belong to a job, to show."""
        redact = self.site.redact
        return fields if redact is None else redact(self.visitor, fields)

    def seen_item(self, value: Any) -> Any:
        """Return an item of an output as the visitor may see it.

        The class of its job is not known, so only a redaction that does not look at it decides.
        """
        if self.site.redact not in (None, hide_arguments):
            return HIDDEN
        return self.visible_fields({"output": value}).get("output", HIDDEN)

    def progress(
        self, progress: JobProgress | None, fields: Mapping[str, Any]
    ) -> JobProgress | None:
        """Return the progress of a job with these fields, with a note that the visitor may see."""
        if progress is None:
            return None
        note = self.visible_fields({**fields, "note": progress.note}).get("note", HIDDEN)
        return replace(progress, note=note if isinstance(note, str) else HIDDEN)

    def target(self, target: str) -> str:
        """Return the target of an entry of the journal as the visitor may see it."""
        return journal_target(target, redacted=self.site.redact is not None)

    def shared(self, name: str, read: Callable[[], T]) -> T:
        """Return what a function read at most a second ago, for any visitor.

        So the load on Redis does not grow with the number of open pages.
        """
        return self.site.shared(name, read)


def _pairs(encoded: bytes) -> list[tuple[str, str]]:
    text = encoded.decode("ascii", "surrogateescape")
    return parse_qsl(text, keep_blank_values=True, errors="surrogateescape")


def _quoted(path: str) -> bytes:
    return quote(path, errors="surrogateescape").encode()


def _unquoted(raw: bytes) -> str:
    return unquote_to_bytes(raw).decode("utf-8", "surrogateescape")
