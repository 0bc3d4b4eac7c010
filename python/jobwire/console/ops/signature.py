"""The signature of a failure, which is the same for failures of the same cause."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from jobwire.inspect.entry import Entry

__all__ = ["Signature", "application_frame", "general_message", "signature"]

MAX_CHARS = 500  # characters of a message that count
MAX_LINES = 200  # lines of a backtrace in which a frame of the application is looked for

# Each pattern matches in linear time, and the text is short: a message can be hostile. [SEC-4]
_QUOTED = re.compile(
    r'"[^"]*"|`[^`\']*[`\']|(?<!\w)\'[^\']*\'(?!\w)'
    r"|\u201c[^\u201d]*\u201d|\u2018[^\u2019]*\u2019|\u00ab[^\u00bb]*\u00bb"
)
_QUOTE = re.compile("[\"`'\u201c\u2018\u00ab]")
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_HEX = re.compile(r"\b0x[0-9a-f]+\b|\b(?=[a-z]*\d)(?=\d*[a-z])[0-9a-f]{8,}\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:_]\d+)*")
# An id: a word that mixes letters and digits, such as the `cus_9s6XKzkNRiz8i3` of a payment.
_ID = re.compile(r"\b(?=\w*\d)(?=\w*[A-Za-z])\w{10,}\b")
_MAY_BE_ID = re.compile(r"\w{8}|0x", re.IGNORECASE)  # in any text that one of the three matches
_FRAME = re.compile(r"^(.*?):\d+(?::(?:in )?\s*[`'\"]?(.*?)['\"]?)?$")
_FOREIGN = (
    *("/gems/", "/lib/ruby/", "/site-packages/", "/dist-packages/", "/lib/python", "/rubygems"),
    *("<internal:", "<frozen ", "<string>", "/jobwire/worker/", "/jobwire/application/"),
)


class Signature(NamedTuple):
    """The signature of a failure.

    Attributes:
        error_class: Class of the error.
        message: Message in which `…` replaces quoted values, and `N` numbers and ids.
        frame: File and function of the innermost call of the application, or "".
        job_class: Display class of the job.
    """

    error_class: str
    message: str
    frame: str
    job_class: str

    @property
    def key(self) -> str:
        """16 hex digits that name the group, the same in every process."""
        joined = "\0".join(self).encode("utf-8", "surrogatepass")
        return hashlib.sha256(joined).hexdigest()[:16]


def signature(one: Entry) -> Signature:
    """Return the signature of an entry of the retry set or the dead set."""
    if one.fault is not None:
        return Signature("(unreadable payload)", general_message(one.fault.problem), "", "")
    backtrace = one.error_backtrace
    frame = application_frame(backtrace) if backtrace else ""
    return Signature(one.error_class, general_message(one.error_message), frame, one.display_class)


def general_message(message: str) -> str:
    """Return a message without numbers, ids, hex digits and quoted values, as one line."""
    short = " ".join(message[:MAX_CHARS].split())
    if message[MAX_CHARS:]:
        # A quote that is cut in two would not be found.
        short = re.sub(r"[\"'`\u201c\u2018\u00ab][^\"'`\u201c\u2018\u00ab]*$", "…", short) + "…"
    if _QUOTE.search(short):
        short = _QUOTED.sub("…", short)
    for pattern in (_UUID, _HEX, _ID) if _MAY_BE_ID.search(short) else ():
        short = pattern.sub("N", short)
    return _NUMBER.sub("N", short)


def application_frame(backtrace: Sequence[str]) -> str:
    """Return `file in function` of the innermost call of the application, without line numbers.

    If all lines belong to libraries, the innermost line counts. Numbers in the path of the file,
    such as the date of a release, count as equal.
    """
    lines = backtrace[:MAX_LINES]
    own = next((line for line in lines if not any(part in line for part in _FOREIGN)), None)
    line = next(iter(lines), "") if own is None else own
    short = line[:MAX_CHARS].strip()
    match = _FRAME.match(short)
    if match is None:
        return _NUMBER.sub("N", short)
    file, function = match[1], match[2]
    place = _NUMBER.sub("N", file)
    return f"{place} in {function}" if function else place
