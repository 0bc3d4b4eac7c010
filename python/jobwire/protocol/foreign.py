"""Features of other products that change what a job means, and jobs set aside for them. [X-PARK]"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha1
from types import MappingProxyType
from typing import Any, Literal, get_args

from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import Outcome
from jobwire.protocol.wire import command

__all__ = [
    "DELAYED_CLASSES",
    "FATES",
    "FEATURES",
    "NEWER",
    "POLICIES",
    "TOO_LARGE",
    "UNKNOWN",
    "Feature",
    "ForeignPolicy",
    "announces",
    "park",
    "why_field",
]

Feature = Literal["encrypt", "bid", "expires_in", "unique_for", "overrated", "delayed"]
"""A field of a commercial edition, or `delayed`: the classes of Sidekiq's delayed extensions."""

ForeignPolicy = Literal["park", "run", "fail", "hand_over"]
"""The fate of a job: set aside, run without the feature, failed like one that raised, or given to
the queue that the setting `hand_over` names for its class; without such a queue it is set aside."""

FEATURES: tuple[Feature, ...] = get_args(Feature)
FATES: tuple[ForeignPolicy, ...] = get_args(ForeignPolicy)

POLICIES: Mapping[Feature, ForeignPolicy] = MappingProxyType(
    {
        "encrypt": "fail",
        "bid": "park",
        "expires_in": "park",
        "unique_for": "run",
        "overrated": "run",
        "delayed": "park",
    }
)
"""The defaults. `encrypt` fails, as EXEC-13 asks, because middleware may decrypt. [X-PARK-1]"""

UNKNOWN = "unknown"
"""The reason of a parked job whose class is not registered; others follow, and are features."""

NEWER = "version"
"""The reason of a parked job that is of a newer version of its class."""

TOO_LARGE = "size"
"""The reason of a parked job whose arguments inflate to more than a worker allows. [X-ZIP-3]"""

DELAYED_CLASSES = frozenset(
    f"Sidekiq::Extensions::Delayed{on}" for on in ("Class", "Mailer", "Model")
)


def announces(fields: Mapping[str, Any], feature: Feature) -> bool:
    """True if a payload has the field of a feature; one that is null or false does not count."""
    value = fields.get(feature)
    return value is not None and value is not False


def why_field(text: bytes) -> str:
    """Return the field of a payload in the hash of reasons. [X-PARK-4]"""
    return sha1(text, usedforsecurity=False).hexdigest()


def park(keys: Keys, text: bytes, reason: str, now: float) -> Outcome:
    """Return the outcome of a job that is set aside with its exact bytes. [X-PARK-3] [X-PARK-4]"""
    why = command("HSET", keys.parked_why, why_field(text), reason)
    return Outcome("parked", text, now, counted="", beside=(why,))
