"""The ASGI application."""

from __future__ import annotations

import inspect
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from jobwire.application.aio import AsyncClient
from jobwire.application.clients import Clients
from jobwire.console.ops.operations import Operations
from jobwire.console.ops.roles import ROLES
from jobwire.console.web.access import CHALLENGE, Authorize, Passwords, Visitor
from jobwire.console.web.attempts import MAX_DELAY_S
from jobwire.console.web.context import Absent, Page, Redirect, RequestContext
from jobwire.console.web.guard import Guard, with_headers
from jobwire.console.web.live import Streams, UpdateResponse, output_events, stream
from jobwire.console.web.pages import overview, stats
from jobwire.console.web.redaction import Redact
from jobwire.console.web.rendering import Pages, asset
from jobwire.console.web.routes import ACTIONS, MENU, PAGES, Action, MenuItem, Show
from jobwire.console.web.site import Site
from jobwire.errors import (
    ConfigError,
    InvalidArgument,
    JobwireError,
    NotPermitted,
    OutputGap,
    PayloadError,
    RedisTrouble,
)
from jobwire.inspect.fleet import Fleet
from jobwire.inspect.shards import AskAll
from jobwire.protocol.output import Tail
from jobwire.text import visible

__all__ = ["WebApp"]

MAX_BODY_BYTES = 1_000_000  # bytes of a form
MAX_FIELDS = 20_000
REFRESH_S = 2.0
THREADS = 20  # for requests to one Redis; and half of that for updates
UNEXPECTED = "An unexpected error happened. The log of the server has it."

T = TypeVar("T")
log = logging.getLogger(__name__)
# For each event loop, the name of a Redis, and updates or requests. The threads of the application
# that mounts this one stay free, if Redis is away and each request waits for it; the pages of other
# Redis do not wait; and updates of open pages do not keep requests waiting.
_limiters: RunVar[dict[tuple[str, bool], CapacityLimiter]] = RunVar("jobwire.web.limiters")


class WebApp:
    """The web page as an ASGI application, to serve alone or to mount.

        app = FastAPI()
        app.mount("/jobs", WebApp("redis://localhost:6379/0", authorize=visitor_of))

    In an application of WSGI, `a2wsgi.ASGIMiddleware` serves it. There, open pages are not updated,
    because each would occupy a thread of the server.

    An open page holds a connection for up to five minutes. Give a server that waits for all of them
    at its end a limit, such as `uvicorn --timeout-graceful-shutdown 5`.

    Args:
        redis: Where Redis is; by default found as for `Client`. Or several: name to URL. Each
            has its pages under its name, and the first page shows all of them and their sums.
        authorize: Returns the visitor of a request, or None to refuse it; it may be a coroutine
            function.
        redact: Returns the fields of a payload that a visitor sees, such as `hide_arguments`.
        read_only: True to make each visitor a viewer.
        namespace: Prefix of every key; leave empty beside Sidekiq. [KEY-4]
        secret: Signs forms; processes that serve the same page need the same. Random by default.
        refresh: Seconds between two updates of an open page.
        timeout: Seconds to wait for a connection to Redis, and for a reply.
        clock: Returns epoch seconds.

    Raises:
        ConfigError: A URL is not valid, or the name of a Redis cannot be part of a path.
    """

    def __init__(
        self,
        redis: str | Mapping[str, str] | None = None,
        *,
        authorize: Authorize,
        redact: Redact | None = None,
        read_only: bool = False,
        namespace: str = "",
        secret: str | None = None,
        refresh: float = REFRESH_S,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authorize = authorize
        self._read_only = read_only
        self._streams = Streams()
        self._guard = Guard(secret)
        self._pages = Pages()
        several = redis if isinstance(redis, Mapping) else {}
        for name in several:
            if not name.isascii() or not re.sub("[-_.]", "", name).isalnum():
                raise ConfigError(
                    f"redis: {name!r} cannot be part of a path: use a-z, 0-9, '-', '_' and '.'"
                )
        urls: Mapping[str, str | None] = several or {"": redis if isinstance(redis, str) else None}
        site = partial(
            Site,
            redis_names=tuple(several),
            redact=redact,
            guard=self._guard,
            pages=self._pages,
            refresh=refresh,
            clock=clock,
        )
        clients = partial(
            Clients,
            namespace=namespace,
            generation="auto",
            strict_args="raise",
            middleware=(),
            wait_replicas=0,
        )
        self._sites = {
            name: site(
                Operations(url, namespace=namespace, timeout=timeout, clock=clock),
                clients=clients(url),
                name=name,
            )
            for name, url in urls.items()
        }
        self._fleets: AskAll[Fleet] = AskAll()
        self._all: Site | None = None  # the page of several
        routes: list[BaseRoute]
        if several:
            # Its pages only show the numbers of the others, so they use no operations.
            first = self._sites[next(iter(several))]
            self._all = site(first.operations, clients=first.clients)
            routes = [Mount(f"/{name}", routes=self._routes(self._sites[name])) for name in several]
            routes += [
                _Route(path, self._show(self._all, partial(show, read=self._read)), methods=["GET"])
                for path, show in (("/", overview.show_all), ("/metrics", stats.all_metrics))
            ]
        else:
            routes = self._routes(self._sites[""])
        self._inner = Starlette(
            routes=routes, exception_handlers={404: _nothing_here}, lifespan=self._lifespan
        )
        self._app = with_headers(self._without_exceptions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    async def _without_exceptions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; an exception is logged, and the visitor does not see it."""
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._inner(scope, receive, watched)
        except Exception:
            if scope["type"] != "http":
                raise
            log.exception("%s %s failed", scope["method"], visible(scope["path"]))
            if not started:
                await PlainTextResponse(f"{UNEXPECTED}\n", 500)(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Close at the end of a server that serves this application alone."""
        yield
        await to_thread.run_sync(self.close)

    def end_updates(self) -> None:
        """End the updates of open pages, in the thread of the event loop: the server ends soon."""
        self._streams.end()

    def close(self) -> None:
        """Close the connections. Changes of many jobs stop after their batch."""
        self._fleets.close()
        for site in self._sites.values():
            site.close()

    def _read(self) -> Mapping[str, Fleet | RedisTrouble]:
        """Return the numbers of each Redis, or its trouble."""
        return self._fleets.answers({name: site.fleet for name, site in self._sites.items()})

    # -- one Redis

    def _routes(self, site: Site) -> list[BaseRoute]:
        return [
            Mount("/static", _Static(packages=[("jobwire.console.web", "static")])),
            *(_Route(page.path, self._show(site, page.show), methods=["GET"]) for page in PAGES),
            _Route("/output/{jid:path}", self._output(site), methods=["GET"]),
            *(
                Route(f"/acts/{act.name}", self._act(site, act), methods=["POST"])
                for act in ACTIONS
            ),
        ]

    def _output(self, site: Site) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            context = await self._context(site, request)
            if context is None:
                return self._refused(request)
            if "wsgi_environ" in request.scope:
                return Response(status_code=204)  # by which a browser asks no more
            last = request.headers.get("last-event-id") or context.asked("after")
            try:
                tail = Tail(context.name(), last)
                client = site.clients.aclient
                if last and await _is_over(client, tail):
                    return Response(status_code=204)
            except InvalidArgument as error:
                return Response(f"{error}\n", 400, media_type="text/plain")
            except RedisTrouble as error:
                return Response(f"{visible(str(error))}\n", 503, media_type="text/plain")
            if not self._streams.take():
                return Response("too many open pages\n", 503, {"Retry-After": "30"}, "text/plain")
            return UpdateResponse(output_events(client, tail, context.seen_item), self._streams)

        return endpoint

    def _show(self, site: Site, show: Show) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            context = await self._context(site, request)
            if context is None:
                return self._refused(request)
            wants_updates = "text/event-stream" in request.headers.get("accept", "")
            if wants_updates and request.method == "GET":
                return self._stream(context, show)
            return await _in_thread(site, lambda: self._answer(context, lambda: show(context)))

        return endpoint

    def _act(self, site: Site, act: Action) -> Callable[[Request], Any]:
        def done(context: RequestContext) -> Page | Redirect:
            try:
                return act.do(context)
            finally:
                site.changed()

        async def endpoint(request: Request) -> Response:
            context = await self._context(site, request)
            if context is None:
                return self._refused(request)
            try:
                form = await _form(request)
            except ClientDisconnect:
                return Response(status_code=400)  # which no client reads
            if form is None:
                problem: str | None = (
                    f"the form is longer than {MAX_BODY_BYTES:,} bytes, or not a form"
                )
            else:
                context = replace(context, form=form)
                token = next((value for name, value in form if name == "token"), "")
                problem = site.guard.problem(request, token, context.visitor.person)
            if problem:
                return self._trouble(context, HTTPStatus.FORBIDDEN, "Refused", problem)
            return await _in_thread(site, lambda: self._answer(context, lambda: done(context)))

        return endpoint

    async def _context(self, site: Site, request: Request) -> RequestContext | None:
        visitor = self._authorize(request)
        if inspect.isawaitable(visitor):
            visitor = await visitor
        if visitor is None:
            return None
        if not isinstance(visitor, Visitor):
            raise TypeError(f"authorize returned {visitor!r}; expected a Visitor or None")
        if self._read_only:
            visitor = Visitor(visitor.person, ROLES[0])
        return RequestContext(
            request=request,
            site=site,
            visitor=visitor,
            operations=site.operations.acting_for(visitor.person, visitor.role),
            now=site.clock(),
            session=site.guard.session(request),
            notice=site.guard.notice(request),
        )

    # -- answers

    def _answer(
        self, context: RequestContext, make: Callable[[], Page | Redirect | Response]
    ) -> Response:
        """Return the answer of a page or an action, or the page of its trouble."""
        try:
            answer = make()
            if isinstance(answer, Response):
                return answer
            if isinstance(answer, Redirect):
                return self._redirect(context, answer)
            html = context.site.pages.page(answer.template, self._values(context, answer))
        except Absent as error:
            return self._trouble(context, HTTPStatus.NOT_FOUND, "Not found", str(error))
        except NotPermitted as error:
            why = "; this page is read-only" if self._read_only else ""
            return self._trouble(context, HTTPStatus.FORBIDDEN, "Not permitted", f"{error}{why}")
        except (ConfigError, PayloadError) as error:
            return self._trouble(context, HTTPStatus.BAD_REQUEST, "Not possible", str(error))
        except RedisTrouble as error:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            return self._trouble(context, status, "Redis cannot be used", str(error))
        except Exception:
            request = context.request
            log.exception("%s %s failed", request.method, visible(request.scope["path"]))
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return self._trouble(context, status, "Unexpected error", UNEXPECTED)
        return self._html(context, html, answer.status)

    def _redirect(self, context: RequestContext, answer: Redirect) -> Response:
        response = RedirectResponse(answer.path, HTTPStatus.SEE_OTHER)
        if answer.notice:
            context.site.guard.leave_notice(context.request, response, visible(answer.notice))
        return response

    def _html(self, context: RequestContext, html: str, status: int) -> Response:
        response = HTMLResponse(html.encode("utf-8", "replace"), status)
        guard = context.site.guard
        guard.keep_session(context.request, response, context.session)
        if context.notice:
            guard.drop_notice(context.request, response)
        return response

    def _values(self, context: RequestContext, page: Page) -> dict[str, Any]:
        return {
            "context": context,
            "menu": self._menu(context),
            "fleet": None if context.site is self._all else context.site.fleet(),
            "live": context.site.pages.has_block(page.template, "live"),
            **page.values,
        }

    def _menu(self, context: RequestContext) -> Sequence[MenuItem]:
        return () if context.site is self._all else MENU

    def _trouble(
        self, context: RequestContext, status: HTTPStatus, title: str, text: str
    ) -> Response:
        """Return the page of an error, which needs no Redis."""
        values = {"context": context, "menu": self._menu(context), "fleet": None, "live": False}
        values |= {"title": title, "text": text}
        return self._html(context, context.site.pages.page("trouble.html", values), status)

    def _refused(self, request: Request) -> Response:
        if getattr(request.state, "too_many", False):
            later = {"Retry-After": f"{MAX_DELAY_S:.0f}"}
            return Response("too many wrong passwords\n", 429, later, "text/plain")
        if isinstance(self._authorize, Passwords):
            return Response("a name and a password are needed\n", 401, CHALLENGE, "text/plain")
        path = visible(request.scope["path"])
        log.warning("%s %s refused: authorize returned no visitor", request.method, path)
        return Response("you may not see this page\n", 403, media_type="text/plain")

    # -- updates

    def _stream(self, context: RequestContext, show: Show) -> Response:
        if "wsgi_environ" in context.request.scope:
            return Response(status_code=204)  # by which the browser asks no more
        if not self._streams.take():
            return Response("too many open pages\n", 503, {"Retry-After": "30"}, "text/plain")

        def parts() -> dict[str, str]:
            current = replace(context, now=context.site.clock(), updating=True)
            try:
                page = show(current)
                if not isinstance(page, Page):
                    return {}
                values = self._values(current, page)
                pages = context.site.pages
                html = {"menu": pages.page("menu.html", values)}
                if values["live"]:
                    html["live"] = pages.block(page.template, "live", values)
            except (JobwireError, Absent) as error:
                return {"trouble": visible(str(error))}
            except Exception:
                log.exception("updates of %s failed", visible(context.request.scope["path"]))
                return {"trouble": UNEXPECTED}
            return {"trouble": "", **html}

        events = stream(
            lambda: _in_thread(context.site, parts, updates=True), refresh=context.site.refresh
        )
        return UpdateResponse(events, self._streams)


class _Route(Route):
    """A route whose rest of the path may have line breaks, as a name from Redis may."""

    def __init__(self, path: str, endpoint: Callable[[Request], Any], **more: Any) -> None:
        super().__init__(path, endpoint, **more)
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)


async def _is_over(client: AsyncClient, tail: Tail) -> bool:
    """True if a reader that has the last entry of an output comes back for more."""
    probe = Tail(tail.jid, tail.position)
    try:
        return not await client.read_output(probe, 0.0) and probe.over
    except OutputGap:
        return False


async def _in_thread(site: Site, function: Callable[[], T], *, updates: bool = False) -> T:
    limiters = _limiters.get(None)
    if limiters is None:
        limiters = {}
        _limiters.set(limiters)
    limiter = limiters.get((site.name, updates))
    if limiter is None:
        limiter = CapacityLimiter(THREADS // 2 if updates else THREADS)
        limiters[site.name, updates] = limiter
    # An action must be known to have ended. The end of a server must not wait for an update.
    return await to_thread.run_sync(function, limiter=limiter, abandon_on_cancel=updates)


class _Static(StaticFiles):
    """The files of the page. Browsers keep those whose address has their digest."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file."""
        response = await super().get_response(path, scope)
        known = response.status_code in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED)
        query = scope["query_string"].decode("latin-1")
        # A server that is replaced at this moment must not serve its file as that of the next.
        current = known and asset(path) == f"/static/{path}?{query}"
        kept = "max-age=31536000, immutable" if current else "no-cache"
        response.headers["Cache-Control"] = kept
        return response


async def _form(request: Request) -> list[tuple[str, str]] | None:
    """Return the names and values of a form; None if it is none, or too long."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        return None
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            return None
    text = body.decode("ascii", "surrogateescape")
    try:
        return parse_qsl(text, True, errors="surrogateescape", max_num_fields=MAX_FIELDS)
    except ValueError:  # too many fields
        return None


async def _nothing_here(request: Request, error: Exception) -> Response:
    return Response("there is no such page\n", 404, media_type="text/plain")
