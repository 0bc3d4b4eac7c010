"""The neutral form of the arguments of Active Job, as fixtures/README.md describes it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from jobwire.active_job import Duration, GlobalID, Keywords, Module, Range, Serialized, Symbol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def neutral(value: Any) -> Any:
    """Return a value that an Active Job got, in the neutral form."""
    match value:
        case Symbol():
            return {"symbol": str(value)}
        case list():
            return [neutral(item) for item in value]
        case dict():
            kind = "keywords" if isinstance(value, Keywords) else "hash"
            return {kind: [[neutral(key), neutral(item)] for key, item in value.items()]}
        case GlobalID():
            return {"record": value.uri}
        case datetime():
            return {"time": (value - _EPOCH) // timedelta(microseconds=1)}
        case date():
            return {"date": value.isoformat()}
        case Duration():
            return {"duration": value.value}
        case Decimal():
            return {"decimal": f"{value:f}"}
        case Range():
            return {"range": [neutral(value.begin), neutral(value.end), value.exclude_end]}
        case Module():
            return {"module": value.name}
        case Serialized():
            return {"serialized": value.fields}
    return value
