"""Protection of the pages: headers against foreign content, tokens against foreign forms."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["HEADERS", "Guard", "session_of", "with_headers"]

COOKIE = "jobwire_session"
NOTICE = "jobwire_notice"
MAX_NOTICE_CHARS = 500  # characters
SESSION = re.compile(r"[0-9a-f]{32}")
PORTS = {"http": 80, "https": 443}
NOTICE_AGE_S = 60

# No inline script or style, no other host, and no frame of another site.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src"
        " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ENCODED = [(name.lower().encode(), text.encode()) for name, text in HEADERS.items()]


def with_headers(app: ASGIApp) -> ASGIApp:
    """Return an application whose answers all have the headers, errors and redirects as well."""

    async def protected(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", ()))
                own = {name.lower() for name, _ in given}
                added = [pair for pair in ENCODED if pair[0] not in own]
                message = {**message, "headers": given + added}
            await send(message)

        await app(scope, receive, send_with_headers)

    return protected


class Guard:
    """Signs the tokens of forms, the notices after an action, and the names of jobs in addresses.

    A form carries a token that only this application can make from the visitor's cookie. Nothing
    is stored, so processes that share the secret can serve the same visitors.

    Args:
        secret: Secret of the signatures; a new one by default.
    """

    def __init__(self, secret: str | None = None) -> None:
        self._secret = (secret or secrets.token_hex(32)).encode()
        # Keyed, because a visitor who may not see all of a payload sees its digest.
        self.digest_key = self._sign("digest", "").encode()

    def session(self, request: Request) -> str:
        """Return the session of a visitor, a new one if there is none."""
        return session_of(request) or secrets.token_hex(16)

    def token(self, session: str, person: str) -> str:
        """Return the token of the forms of a session, for one person.

        Another person cannot use it, even with the cookie. A page of a neighbouring host can set
        a cookie, but then the token in its form is that of its author.
        """
        return self._sign("token", f"{session}:{person}")

    def problem(self, request: Request, token: str, person: str) -> str | None:
        """Return the reason to refuse a change, or None.

        The browser says where the form came from, and the token proves that it is one of ours.
        """
        site = request.headers.get("sec-fetch-site")
        if site is not None and site != "same-origin":
            return f"the form comes from another site (Sec-Fetch-Site: {site})"
        origin, host = request.headers.get("origin"), request.headers.get("host", "")
        if origin is not None and not _same_host(origin, host):
            return (
                f"the form comes from {origin}, and this page is {host}; if that is the same page"
                " behind a proxy, let the proxy pass the header Host on"
            )
        session = session_of(request)
        if not session or not _equal(self.token(session, person), token):
            return (
                "the form has no valid token; load the page again (processes that serve the same"
                " page need the same secret)"
            )
        return None

    def signed_group(self, key: str) -> str:
        """Return the name of a group of failures in addresses.

        Its key is a digest of error messages. If it were accepted unsigned, a visitor could try
        guesses of a hidden message, and see whether a group has them.
        """
        return f"{key}-{self._sign('group', key)[:32]}"

    def group(self, signed: str) -> str | None:
        """Return the key of a group from its name in an address, or None if it is not ours."""
        key = signed.partition("-")[0]
        return key if _equal(self.signed_group(key), signed) else None

    def keep_session(self, request: Request, response: Response, session: str) -> None:
        """Set the cookie of the session, unless the browser has it."""
        if request.cookies.get(COOKIE) != session:
            self._set(request, response, COOKIE, session)

    def leave_notice(self, request: Request, response: Response, notice: str) -> None:
        """Let the next page show a notice."""
        encoded = base64.urlsafe_b64encode(
            notice[:MAX_NOTICE_CHARS].encode("utf-8", "replace")
        ).decode()
        signed = f"{encoded}.{self._sign('notice', encoded)}"
        self._set(request, response, NOTICE, signed, age=NOTICE_AGE_S)

    def notice(self, request: Request) -> str:
        """Return the notice that the last action left, or ""."""
        encoded, _, signature = request.cookies.get(NOTICE, "").partition(".")
        if not _equal(self._sign("notice", encoded), signature):
            return ""
        return base64.urlsafe_b64decode(encoded).decode()

    def drop_notice(self, request: Request, response: Response) -> None:
        """Forget the notice."""
        response.delete_cookie(NOTICE, path=_path(request), samesite="strict", httponly=True)

    def _sign(self, purpose: str, text: str) -> str:
        signed = f"{purpose}:{text}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, signed, hashlib.sha256).hexdigest()

    def _set(
        self, request: Request, response: Response, name: str, value: str, age: int | None = None
    ) -> None:
        response.set_cookie(
            name,
            value,
            max_age=age,
            path=_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


def session_of(request: Request) -> str:
    """Return the session of a visitor, or ""."""
    session = request.cookies.get(COOKIE, "")
    return session if SESSION.fullmatch(session) else ""


def _equal(one: str, other: str) -> bool:
    # Of texts, compare_digest takes only ASCII, and both come from outside.
    return hmac.compare_digest(
        one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    )


def _same_host(origin: str, host: str) -> bool:
    """Return True if the header `Origin` names the host of the header `Host`."""
    try:
        theirs, ours = urlsplit(origin), urlsplit(f"//{host}")
        default = PORTS.get(theirs.scheme)
        return bool(theirs.hostname) and (theirs.hostname, theirs.port or default) == (
            ours.hostname,
            ours.port or default,
        )
    except ValueError:  # not a URL, or its port is not a number
        return False


def _path(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return f"{root}/"
