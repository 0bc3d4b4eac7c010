"""Client and worker for the Redis wire protocol that Sidekiq speaks.

A name is imported at its first use, so `import jobwire` costs nothing, and a program that only
enqueues jobs does not load the worker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jobwire._version import __version__ as __version__

if TYPE_CHECKING:
    from jobwire import iterables, testing
    from jobwire.application.aio import AsyncClient
    from jobwire.application.app import App
    from jobwire.application.batch import Batch
    from jobwire.application.chain import Chain, ChainRun, chain, previous
    from jobwire.application.client import Client
    from jobwire.application.config import CapsuleConfig, WorkerConfig
    from jobwire.application.current import current_job, report_progress
    from jobwire.application.group import Group, GroupRun, group
    from jobwire.application.iterabletype import IterableOptions
    from jobwire.application.jobtype import JobType
    from jobwire.application.logs import JobFilter
    from jobwire.application.push_buffer import PendingPushes, PushBuffer
    from jobwire.application.sharded import PlacedIds
    from jobwire.application.signature import Signature
    from jobwire.errors import (
        BatchEnded,
        BufferFull,
        Cancelled,
        ConfigError,
        DuplicateJob,
        InvalidArgument,
        InvalidJob,
        JobCrashed,
        JobFailed,
        JobTimeout,
        JobwireError,
        MalformedPayload,
        MaybeWritten,
        NoReply,
        NotPermitted,
        OutputGap,
        PayloadError,
        PoisonPill,
        RedisRefused,
        RedisTrouble,
        RedisUnreachable,
        ResultError,
        Shutdown,
        Snooze,
        TryAgain,
        UnknownJob,
    )
    from jobwire.inspect.aio import AsyncInspector
    from jobwire.inspect.filters import Filter
    from jobwire.inspect.sync import Inspector
    from jobwire.protocol.batches import BatchStatus
    from jobwire.protocol.iteration import Cursor
    from jobwire.protocol.limits import Limit
    from jobwire.protocol.normalize import Options
    from jobwire.protocol.output import OutputItem
    from jobwire.protocol.payload import Job
    from jobwire.protocol.progress import JobProgress
    from jobwire.protocol.results import Result
    from jobwire.protocol.unique import Unique
    from jobwire.worker.process.launcher import Launcher

__all__ = [
    "App",
    "AsyncClient",
    "AsyncInspector",
    "Batch",
    "BatchEnded",
    "BatchStatus",
    "BufferFull",
    "Cancelled",
    "CapsuleConfig",
    "Chain",
    "ChainRun",
    "Client",
    "ConfigError",
    "Cursor",
    "DuplicateJob",
    "Filter",
    "Group",
    "GroupRun",
    "Inspector",
    "InvalidArgument",
    "InvalidJob",
    "IterableOptions",
    "Job",
    "JobCrashed",
    "JobFailed",
    "JobFilter",
    "JobProgress",
    "JobTimeout",
    "JobType",
    "JobwireError",
    "Launcher",
    "Limit",
    "MalformedPayload",
    "MaybeWritten",
    "NoReply",
    "NotPermitted",
    "Options",
    "OutputGap",
    "OutputItem",
    "PayloadError",
    "PendingPushes",
    "PlacedIds",
    "PoisonPill",
    "PushBuffer",
    "RedisRefused",
    "RedisTrouble",
    "RedisUnreachable",
    "Result",
    "ResultError",
    "Shutdown",
    "Signature",
    "Snooze",
    "TryAgain",
    "Unique",
    "UnknownJob",
    "WorkerConfig",
    "chain",
    "current_job",
    "group",
    "iterables",
    "previous",
    "report_progress",
    "testing",
]

_HOMES = {
    "App": "application.app",
    "AsyncClient": "application.aio",
    "AsyncInspector": "inspect.aio",
    "Batch": "application.batch",
    "BatchStatus": "protocol.batches",
    "CapsuleConfig": "application.config",
    "Chain": "application.chain",
    "ChainRun": "application.chain",
    "Client": "application.client",
    "Cursor": "protocol.iteration",
    "Filter": "inspect.filters",
    "Group": "application.group",
    "GroupRun": "application.group",
    "Inspector": "inspect.sync",
    "IterableOptions": "application.iterabletype",
    "Job": "protocol.payload",
    "JobFilter": "application.logs",
    "JobProgress": "protocol.progress",
    "JobType": "application.jobtype",
    "Launcher": "worker.process.launcher",
    "Limit": "protocol.limits",
    "Options": "protocol.normalize",
    "OutputItem": "protocol.output",
    "PendingPushes": "application.push_buffer",
    "PlacedIds": "application.sharded",
    "PushBuffer": "application.push_buffer",
    "Result": "protocol.results",
    "Signature": "application.signature",
    "Unique": "protocol.unique",
    "WorkerConfig": "application.config",
    "chain": "application.chain",
    "current_job": "application.current",
    "group": "application.group",
    "previous": "application.chain",
    "report_progress": "application.current",
}
"""Name to module, for the names that are neither errors nor modules of their own."""

if not TYPE_CHECKING:  # otherwise every unknown name would have a type

    def __getattr__(name: str) -> Any:
        if name in ("iterables", "testing"):
            return import_module(f"jobwire.{name}")
        if name not in __all__:
            raise AttributeError(f"module 'jobwire' has no attribute {name!r}")
        value = getattr(import_module(f"jobwire.{_HOMES.get(name, 'errors')}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
