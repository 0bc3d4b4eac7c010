"""Inspection: read and change queues, sets and processes. [INSP-1] to [INSP-14]

`Inspector` and `PeriodicJobs` block, `AsyncInspector` and `AsyncPeriodicJobs` are for asyncio.
"""

from jobwire.inspect.activity import Activity, JobActivity, Mark
from jobwire.inspect.aio import AsyncInspector
from jobwire.inspect.batches import Batches, BatchMembers, MissingMembers
from jobwire.inspect.entry import Entry, SetName
from jobwire.inspect.filters import Filter
from jobwire.inspect.fleet import Fleet
from jobwire.inspect.limits import LimitPage, LimitState
from jobwire.inspect.locks import Locks, UniqueLock
from jobwire.inspect.periodic import PeriodicJob
from jobwire.inspect.periodic_aio import AsyncPeriodicJobs
from jobwire.inspect.periodic_sync import PeriodicJobs
from jobwire.inspect.processes import CapsuleInfo, InFlightSummary, ProcessInfo, Recoveries, Work
from jobwire.inspect.progress import IterationState
from jobwire.inspect.sets import Action, Progress, Swept
from jobwire.inspect.summary import Day, QueueSummary, Stats
from jobwire.inspect.sync import Inspector
from jobwire.protocol.periodic_entry import PeriodicEntry

__all__ = [
    "Action",
    "Activity",
    "AsyncInspector",
    "AsyncPeriodicJobs",
    "BatchMembers",
    "Batches",
    "CapsuleInfo",
    "Day",
    "Entry",
    "Filter",
    "Fleet",
    "InFlightSummary",
    "Inspector",
    "IterationState",
    "JobActivity",
    "LimitPage",
    "LimitState",
    "Locks",
    "Mark",
    "MissingMembers",
    "PeriodicEntry",
    "PeriodicJob",
    "PeriodicJobs",
    "ProcessInfo",
    "Progress",
    "QueueSummary",
    "Recoveries",
    "SetName",
    "Stats",
    "Swept",
    "UniqueLock",
    "Work",
]
