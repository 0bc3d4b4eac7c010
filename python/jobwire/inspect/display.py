"""Display names of jobs and arguments, as on Sidekiq's page. [PAY-16]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobwire.protocol.active_job import WRAPPERS
from jobwire.protocol.iteration import Place

__all__ = ["CANCELLED", "display_args", "display_class"]

CANCELLED: Mapping[Place, str] = {
    "queued": "was removed before it ran",
    "running": "is asked to end",
    "done": "had ended",
    "unknown": "is in no known place; if it comes within a day, it is refused",
}
"""The effect of a cancellation, by the place of the job; the id comes before it."""

_MAILERS = ("ActionMailer::DeliveryJob", "ActionMailer::MailDeliveryJob")
_HIDDEN = "[encrypted data]"


def display_class(fields: Mapping[str, Any]) -> str:
    """Return the class that an Active Job wraps, the mailer and its method, or the wire class."""
    if isinstance(shown := fields.get("display_class"), str):
        return shown
    class_name = fields.get("class")
    if class_name not in WRAPPERS:
        return "" if class_name is None else str(class_name)
    wrapped = _wrapped(fields)
    if wrapped in _MAILERS:
        match _arguments(fields):
            case [str() as mailer, str() as method, *_]:
                return f"{mailer}#{method}"
    return wrapped or str(class_name)


def display_args(fields: Mapping[str, Any]) -> list[Any]:
    """Return the arguments as the job's author wrote them, without the wrapping of Rails."""
    args = fields.get("args")
    if fields.get("class") in WRAPPERS:
        arguments = _arguments(fields)
        match _wrapped(fields):
            case "ActionMailer::DeliveryJob":
                return _plain(arguments[3:])
            case "ActionMailer::MailDeliveryJob":
                return _plain(_mail(arguments[3:]))
        return _plain(arguments)
    if not isinstance(args, list):
        return [] if args is None else [args]
    if fields.get("encrypt") and args:
        return [*args[:-1], _HIDDEN]
    return args


def _wrapped(fields: Mapping[str, Any]) -> str:
    wrapped = fields.get("wrapped")
    if isinstance(wrapped, str):
        return wrapped
    match fields.get("args"):
        case [str() as name, *_]:
            return name
        case [{"job_class": str() as name}, *_]:
            return name
    return ""


def _arguments(fields: Mapping[str, Any]) -> list[Any]:
    match fields.get("args"):
        case [{"arguments": [*arguments]}, *_]:
            return arguments
    return []


def _mail(arguments: list[Any]) -> list[Any]:
    """Return parameters and arguments of a mail, which Rails stores in one object."""
    match arguments:
        case [{"args": args} as mail, *_]:
            return [mail.get("params"), args]
    return arguments


def _plain(value: list[Any]) -> list[Any]:
    """Return values without the marks of Active Job's serialization."""
    return [_unmarked(item) for item in value]


def _unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return _plain(value)
    if isinstance(value, dict):
        if len(value) == 1 and "_aj_globalid" in value:
            return value["_aj_globalid"]
        return {key: _unmarked(item) for key, item in value.items() if not key.startswith("_aj_")}
    return value
