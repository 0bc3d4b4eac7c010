"""Operations: the command layer under pages, command lines and terminals.

`Operations` reads, acts and explains for one person with a role. The other names are its values.
"""

from jobwire.console.ops.bulk import BulkAction, BulkState
from jobwire.console.ops.detect import Detection, Writer
from jobwire.console.ops.doctor import Finding, Limits, Severity
from jobwire.console.ops.explain import Explanation, Reason
from jobwire.console.ops.groups import FailureGroup, FailureGroups, FailureSet
from jobwire.console.ops.journal import JournalEntry
from jobwire.console.ops.locate import JobLocation
from jobwire.console.ops.operations import Operations
from jobwire.console.ops.paging import PlacePage
from jobwire.console.ops.parking import ParkedJob, Unparked
from jobwire.console.ops.periodic import PeriodicOperations
from jobwire.console.ops.roles import LOWEST_ROLE, ROLES, Action, Role
from jobwire.console.ops.selection import Preview, Selection
from jobwire.console.ops.undo import Deleted, Undone, UndoRecord

__all__ = [
    "LOWEST_ROLE",
    "ROLES",
    "Act",
    "Action",
    "BulkAct",
    "BulkAction",
    "BulkState",
    "Deleted",
    "Detection",
    "Explanation",
    "FailureGroup",
    "FailureGroups",
    "FailureSet",
    "Finding",
    "JobLocation",
    "JournalEntry",
    "Limits",
    "Operations",
    "ParkedJob",
    "PeriodicOperations",
    "PlacePage",
    "Preview",
    "Reason",
    "Role",
    "Selection",
    "Severity",
    "UndoRecord",
    "Undone",
    "Unparked",
    "Whereabouts",
    "Writer",
]

# Names of version 0.1, until 1.0.
Act = Action
BulkAct = BulkAction
Whereabouts = JobLocation
