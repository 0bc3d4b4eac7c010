"""The page of jobs as a view of a Django project; see docs/how-to/django.md."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden, StreamingHttpResponse
from django.urls import NoReverseMatch, reverse
from django.views.decorators.csrf import csrf_exempt

from jobwire.django.project import app
from jobwire.web import Visitor, WebApp

__all__ = ["page"]

_VISITOR = "jobwire.visitor"
_log = logging.getLogger("jobwire.web")


@csrf_exempt  # the forms of the page have tokens of their own
async def page(request: HttpRequest, path: str) -> Any:
    """Answer a request for the page of jobs: staff may look, superusers may do all.

    A visitor without a login goes to that of the admin, or to `LOGIN_URL`.

    Args:
        request: The request.
        path: The rest of the path, after the prefix under which the page is included.
    """
    user = await request.auser()
    if not user.is_authenticated:
        _refuse(request, "no user is logged in")
        return redirect_to_login(request.get_full_path(), _login())
    if not user.is_staff:
        _refuse(request, f"the user {user.get_username()!r} is not staff")
        return HttpResponseForbidden("only staff may see this page\n", content_type="text/plain")
    visitor = Visitor(user.get_username(), "admin" if user.is_superuser else "viewer")
    return await _answer(request, {**_scope(request, path), _VISITOR: visitor})


for _alias in connections:  # an async view has no transaction, also with ATOMIC_REQUESTS
    page = transaction.non_atomic_requests(using=_alias)(page)


def _refuse(request: HttpRequest, reason: str) -> None:
    _log.warning("%s %r refused: %s", request.method, request.path, reason)


def _login() -> Any:
    try:
        return reverse("admin:login")
    except NoReverseMatch:
        return None


@lru_cache(maxsize=1)
def _web_app(url: str | None, shards: tuple[tuple[str, str], ...], namespace: str) -> WebApp:
    return WebApp(
        dict(shards) or url,
        namespace=namespace,
        authorize=lambda request: request.scope[_VISITOR],
        secret=f"jobwire{settings.SECRET_KEY}",  # so that all processes of the project share it
    )


def _scope(request: HttpRequest, path: str) -> dict[str, Any]:
    """Return a request of Django, from WSGI or ASGI, as ASGI describes it."""
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "root_path": request.path.removesuffix(path).removesuffix("/"),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "headers": [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in request.headers.items()
        ],
        "client": (request.META.get("REMOTE_ADDR", ""), 0),
        "server": (request.META.get("SERVER_NAME", ""), int(request.META.get("SERVER_PORT") or 0)),
    }
    if "wsgi.version" in request.META:
        scope["wsgi_environ"] = request.META  # so that no update occupies a thread of the server
    return scope


class _Updates(StreamingHttpResponse):
    """An answer of a task, which ends with it: Django closes it after the visitor has left."""

    def __init__(self, task: asyncio.Task[None], *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._task = task

    def close(self) -> None:
        """End the task, from any thread."""
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)
        super().close()


async def _answer(request: HttpRequest, scope: dict[str, Any]) -> Any:
    """Run the application of the page, and return its answer as one of Django."""
    messages: asyncio.Queue[Any] = asyncio.Queue()
    body = [{"type": "http.request", "body": request.body, "more_body": False}]

    async def receive() -> Any:
        return body.pop() if body else await asyncio.Future()  # cancelled at the end

    async def run() -> None:
        try:
            shards = tuple((name, app.redis[name]) for name in app.shards)
            web_app = _web_app(app.url, shards, app.namespace)
            await web_app(scope, receive, messages.put)
        finally:
            messages.put_nowait({"type": "http.response.body"})

    task = asyncio.create_task(run())

    async def chunks() -> AsyncIterator[bytes]:
        more = True
        try:
            while more:
                message = await messages.get()
                more = message.get("more_body", False)
                yield message.get("body", b"")
            await task  # closes its files
        finally:
            task.cancel()

    start = await messages.get()
    if "status" not in start:
        await task  # raises
    headers = [
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]
    ]
    answer: Any
    if any(name == "content-type" and "event-stream" in value for name, value in headers):
        answer = _Updates(task, chunks(), status=start["status"])
    else:
        answer = HttpResponse([part async for part in chunks()], status=start["status"])
    del answer["Content-Type"]
    for name, value in headers:
        if name == "set-cookie":
            answer.cookies.load(value)
        else:
            answer[name] = value
    return answer
