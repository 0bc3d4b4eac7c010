"""Values that the arguments of jobs of Rails may have. See `App.active_job`."""

from jobwire.application.active_values import (
    Duration,
    GlobalID,
    IndifferentHash,
    Keywords,
    Module,
    Range,
    Serialized,
    Symbol,
)

__all__ = [
    "Duration",
    "GlobalID",
    "IndifferentHash",
    "Keywords",
    "Module",
    "Range",
    "Serialized",
    "Symbol",
]
