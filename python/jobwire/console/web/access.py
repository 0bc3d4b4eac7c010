"""Visitors, their roles, and their passwords."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import anyio
from starlette.requests import Request

from jobwire.console.ops.roles import Role, check_role
from jobwire.console.web.attempts import Attempts, address_of
from jobwire.console.web.guard import session_of
from jobwire.errors import ConfigError

__all__ = ["Account", "Authorize", "Passwords", "Visitor", "read_accounts"]

MAX_SESSIONS = 1000  # sessions in memory
CHALLENGE = {"WWW-Authenticate": 'Basic realm="jobwire", charset="UTF-8"'}


@dataclass(frozen=True, slots=True)
class Visitor:
    """The person who asks.

    Attributes:
        person: Name for the journal.
        role: `viewer`, `operator` or `admin`.
    """

    person: str
    role: Role = "viewer"

    def __post_init__(self) -> None:
        check_role(self.role)


Authorize = Callable[[Request], Visitor | Awaitable[Visitor | None] | None]
"""Returns the visitor of a request; None to refuse it. May be a coroutine function."""


@dataclass(frozen=True, slots=True, repr=False)
class Account:
    """A password with the role that it gives. Its `repr` does not show the password."""

    password: str
    role: Role


class Passwords:
    """Asks for a name and a password by HTTP's basic authentication.

    After several wrong passwords from an address, each answer to this address waits for a moment,
    without occupying a thread. A browser that has entered before does not wait.

    Args:
        accounts: Name to account. The account of the name `*` is for every other name, so one
            token serves a team and the journal still has the names.
    """

    def __init__(self, accounts: Mapping[str, Account]) -> None:
        self._accounts = dict(accounts)
        self._attempts = Attempts()
        # Digests of a session with the name and the password with which it entered.
        self._entered: OrderedDict[bytes, None] = OrderedDict()

    async def __call__(self, request: Request) -> Visitor | None:
        """Return the visitor that the header `Authorization` names, or None."""
        name, password = _given(request.headers.get("authorization", ""))
        if not name or not password:
            return None
        visitor = self._visitor(name, password)
        session = session_of(request)
        browser = _digest("\0".join((session, name, password)))
        if visitor is not None and browser in self._entered:
            return visitor
        address = address_of(request.client.host if request.client else "")
        if pause := self._attempts.pause(address, time.monotonic()):
            if not self._attempts.wait(address):
                request.state.too_many = True
                return None
            try:
                await anyio.sleep(pause)
            finally:
                self._attempts.waited(address)
        if visitor is None:
            self._attempts.wrong(address, name, time.monotonic())
        elif session:
            self._entered[browser] = None
            if len(self._entered) > MAX_SESSIONS:
                self._entered.popitem(last=False)
        return visitor

    def _visitor(self, name: str, password: str) -> Visitor | None:
        account = self._accounts.get(name) or self._accounts.get("*")
        # An unknown name takes as long as a wrong password.
        equal = hmac.compare_digest(_digest(account.password if account else ""), _digest(password))
        if not equal or account is None or name == "*":
            return None
        return Visitor(name, account.role)


def read_accounts(environment: Mapping[str, str]) -> dict[str, Account]:
    """Return the accounts that the environment defines.

    `JOBWIRE_WEB_TOKEN` is the password of every name, in the role `JOBWIRE_WEB_ROLE` (`admin` by
    default). `JOBWIRE_WEB_USERS` has `name:role:password` for each person, separated by blanks.

    Raises:
        ConfigError: An account is incomplete, or its role does not exist.
    """
    accounts = {}
    for item in environment.get("JOBWIRE_WEB_USERS", "").split():
        name, _, rest = item.partition(":")
        role, _, password = rest.partition(":")
        if not (name and role and password) or name == "*":
            raise ConfigError(
                f"JOBWIRE_WEB_USERS: the entry for {name or '(no name)'!r} is not"
                " name:role:password; write for example ada:admin:a-long-password"
            )
        if name in accounts:
            raise ConfigError(f"JOBWIRE_WEB_USERS: {name!r} is there twice")
        accounts[name] = Account(password, _role("JOBWIRE_WEB_USERS", role))
    token = environment.get("JOBWIRE_WEB_TOKEN", "")
    role = environment.get("JOBWIRE_WEB_ROLE", "admin")
    if token:
        accounts["*"] = Account(token, _role("JOBWIRE_WEB_ROLE", role))
    return accounts


def _role(source: str, role: str) -> Role:
    try:
        return check_role(role)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def _digest(password: str) -> bytes:
    """Return bytes of equal length, so that a comparison does not tell the length."""
    return hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest()


def _given(header: str) -> tuple[str, str]:
    """Return the name and the password of a header `Authorization`, or empty texts."""
    scheme, _, value = header.partition(" ")
    match scheme.lower():
        case "basic":
            return _basic(value)
        case "bearer":
            return "token", value.strip()
        case _:
            return "", ""


def _basic(value: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password
