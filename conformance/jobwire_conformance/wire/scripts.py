"""The texts of scripts that a process runs, and whether a script can change data."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from jobwire_conformance.wire.call import Call, script_sha
from jobwire_conformance.wire.commands import spec_of

__all__ = ["may_write", "texts_of"]

_CALL = re.compile(rb"\.\s*p?call\b")
_NAMED = re.compile(rb"\.\s*p?call\s*\(\s*(['\"])([A-Za-z_.]+)\1")


def texts_of(calls: Iterable[Call]) -> dict[str, bytes]:
    """Return the texts that a process has sent, by the SHA-1 of each script."""
    texts = (
        call.words[2] if call.name == b"SCRIPT" else call.words[1]
        for call in calls
        if call.name in (b"EVAL", b"EVAL_RO")
        or (call.name == b"SCRIPT" and [word.upper() for word in call.words[1:2]] == [b"LOAD"])
    )
    return {hashlib.sha1(text, usedforsecurity=False).hexdigest(): text for text in texts}


def may_write(call: Call, texts: dict[str, bytes]) -> bool:
    """Return whether a command may change data; not a script that names only commands that read.

    Args:
        call: The command.
        texts: The known scripts, by their SHA-1.
    """
    text = texts.get(script_sha(call.words) or "")
    if text is None or not call.spec.may_write:
        return call.spec.may_write
    names = [match[2] for match in _NAMED.finditer(text)]
    knows_all = len(names) == len(_CALL.findall(text))
    return not knows_all or any(spec_of(name).may_write for name in names)
