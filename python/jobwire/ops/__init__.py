"""Operations: the command layer under pages, command lines and terminals.

`Operations` reads, acts and explains for one person with a role. The other names are its values.
"""

from jobwire.ops.bulk import BulkAct, BulkState
from jobwire.ops.doctor import Finding, Limits, Severity
from jobwire.ops.explain import Explanation, Reason
from jobwire.ops.groups import FailureGroup, FailureGroups, FailureSet
from jobwire.ops.journal import JournalEntry
from jobwire.ops.operations import Operations
from jobwire.ops.pages import PlacePage
from jobwire.ops.periodic import PeriodicOperations
from jobwire.ops.roles import LOWEST_ROLE, ROLES, Act, Role
from jobwire.ops.selection import Preview, Selection
from jobwire.ops.undo import Deleted, Undone, UndoRecord
from jobwire.ops.whereabouts import Whereabouts

__all__ = [
    "LOWEST_ROLE",
    "ROLES",
    "Act",
    "BulkAct",
    "BulkState",
    "Deleted",
    "Explanation",
    "FailureGroup",
    "FailureGroups",
    "FailureSet",
    "Finding",
    "JournalEntry",
    "Limits",
    "Operations",
    "PeriodicOperations",
    "PlacePage",
    "Preview",
    "Reason",
    "Role",
    "Selection",
    "Severity",
    "UndoRecord",
    "Undone",
    "Whereabouts",
]
