"""Time zones of cron lines: IANA names, fixed offsets, and the local zone of the process."""

from __future__ import annotations

import os
import re
import struct
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from io import BytesIO
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError

from jobwire.errors import ConfigError

__all__ = ["local_zone", "offset_at", "zone"]

_OFFSET = re.compile(r"([+-])(\d\d):([0-5]\d)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
_LOCALTIME = Path("/etc/localtime")
_NO_TRANSITIONS = b"TZif2" + struct.pack(">15x6llbbx", 0, 0, 0, 0, 1, 1, 0, 0, 0)  # one type


@cache
def zone(name: str) -> tzinfo:
    """Return the zone of a name of the IANA database, or of an offset such as `+02:00`.

    Raises:
        ConfigError: There is no such zone, or the system has no database of zones.
    """
    if match := _OFFSET.fullmatch(name):
        sign = -1 if match[1] == "-" else 1
        return timezone(sign * timedelta(hours=int(match[2]), minutes=int(match[3])))
    try:
        if not _NAME.fullmatch(name):
            raise ValueError(name)
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if name != "UTC" and not _has_database():
            raise ConfigError(
                f"time zone {name!r}: this system has no database of time zones; "
                "pip install 'jobwire[periodic]' adds one"
            ) from None
        raise ConfigError(
            f"time zone {name!r} does not exist; give a name like 'Europe/Berlin', 'UTC', "
            "or an offset like '+02:00'"
        ) from None


def _has_database() -> bool:
    try:
        ZoneInfo("Europe/Berlin")
    except (ZoneInfoNotFoundError, OSError):
        return False
    return True


def local_zone() -> tzinfo:
    """Return the local zone of this process: TZ, otherwise that of the system. [X-CRON-12]

    sidekiq-cron uses this zone for a line that names none. TZ has each form that the C library
    reads: a name, a path, a rule of POSIX, all of them perhaps behind a colon; empty, it is UTC.

    Raises:
        ConfigError: TZ is something else.
    """
    given = os.environ.get("TZ")
    if given is None:
        return _of_file(os.path.realpath(_LOCALTIME)) or UTC
    name = given.removeprefix(":")
    if name.lower() in ("", "utc"):
        return UTC
    if name.startswith("/"):
        found = _of_file(os.path.realpath(name))
    else:
        try:
            found = zone(name)
        except ConfigError:
            found = _of_rule(name)
    if found is None:
        raise ConfigError(
            f"TZ={given!r} is not a time zone; set it to a name like Europe/Berlin, or unset it"
        )
    return found


@cache
def _of_file(path: str) -> tzinfo | None:
    for root in TZPATH:
        if path.startswith(root + os.sep):
            with suppress(ConfigError):
                return zone(path.removeprefix(root + os.sep))
    try:
        with open(path, "rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return None


@cache
def _of_rule(rule: str) -> tzinfo | None:
    """Return the zone of a rule like `CET-1CEST,M3.5.0,M10.5.0/3`; None if it is none.

    Files of zones end with such a rule, so `zoneinfo` reads it as a file with nothing else.
    """
    try:
        content = _NO_TRANSITIONS * 2 + f"\n{rule}\n".encode("ascii")
        return ZoneInfo.from_file(BytesIO(content))
    except ValueError:
        # A rule that names a summer time without its dates has those of the United States.
        return None if "," in rule else _of_rule(f"{rule},M3.2.0,M11.1.0")


def offset_at(instant: int, tz: tzinfo) -> int:
    """Return the offset of a zone from UTC at an epoch second, in seconds."""
    offset = datetime.fromtimestamp(instant, tz).utcoffset()
    assert offset is not None
    return offset.days * 86_400 + offset.seconds
