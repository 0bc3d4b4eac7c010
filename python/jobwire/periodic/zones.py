"""Time zones of cron lines: IANA names, fixed offsets, and the local zone of the process."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError

from jobwire.errors import ConfigError

__all__ = ["local_zone", "offset_at", "zone"]

_OFFSET = re.compile(r"([+-])(\d\d):([0-5]\d)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
_LOCALTIME = Path("/etc/localtime")


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

    sidekiq-cron uses this zone for a line that names none.
    """
    name = os.environ.get("TZ", "").removeprefix(":")
    if name:
        return zone(name)
    try:
        target = os.path.realpath(_LOCALTIME)
    except OSError:
        return UTC
    for root in TZPATH:
        if target.startswith(root + os.sep):
            return zone(target.removeprefix(root + os.sep))
    try:
        with _LOCALTIME.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return UTC


def offset_at(instant: int, tz: tzinfo) -> int:
    """Return the offset of a zone from UTC at an epoch second, in seconds."""
    offset = datetime.fromtimestamp(instant, tz).utcoffset()
    assert offset is not None
    return offset.days * 86_400 + offset.seconds
