"""The actions of people, and the lowest role that allows each of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

from jobwire.errors import ConfigError, NotPermitted

__all__ = [
    "LOWEST_ROLE",
    "ROLES",
    "Action",
    "Role",
    "check_role",
    "permits",
    "require",
    "require_for_all",
]

Role = Literal["viewer", "operator", "admin"]
"""`viewer` reads, `operator` acts on jobs and queues, `admin` may also lose work."""

Action = Literal[
    "retry",
    "add_to_queue",
    "kill",
    "delete",
    "reschedule",
    "pause",
    "unpause",
    "unpark",
    "unlock",
    "cancel",
    "mark_deploy",
    "quiet",
    "dump",
    "undo",
    "enable_periodic",
    "disable_periodic",
    "enqueue_periodic",
    "clear",
    "stop",
    "cancel_batch",
    "remove_periodic",
    "load_periodic",
    "migrate_periodic",
]

ROLES: tuple[Role, ...] = get_args(Role)  # the lowest first

LOWEST_ROLE: Mapping[Action, Role] = MappingProxyType(
    {
        "retry": "operator",
        "add_to_queue": "operator",
        "kill": "operator",
        "delete": "operator",
        "reschedule": "operator",
        "pause": "operator",
        "unpause": "operator",
        "unpark": "operator",
        "unlock": "operator",
        "cancel": "operator",
        "mark_deploy": "operator",
        "quiet": "operator",
        "dump": "operator",
        "undo": "operator",
        "enable_periodic": "operator",
        "disable_periodic": "operator",
        "enqueue_periodic": "operator",
        "clear": "admin",
        "stop": "admin",
        "cancel_batch": "admin",
        "remove_periodic": "admin",
        "load_periodic": "admin",
        "migrate_periodic": "admin",
    }
)


# Actions that may lose every job of a place, if no filter spares some: the dead set keeps a limited
# number, so a kill removes the older ones for good.
_EMPTYING: tuple[Action, ...] = ("delete", "kill")


def check_role(role: str) -> Role:
    """Return a role, after a check of its name.

    Raises:
        ConfigError: There is no such role.
    """
    for known in ROLES:
        if role == known:
            return known
    raise ConfigError(f"role: {role!r} is not one of {', '.join(ROLES)}")


def permits(role: Role, act: Action) -> bool:
    """Return True if a role allows an action."""
    return ROLES.index(role) >= ROLES.index(LOWEST_ROLE[act])


def require(role: Role, act: Action) -> None:
    """Check that a role allows an action.

    Raises:
        NotPermitted: The role does not allow it.
    """
    if not permits(role, act):
        raise NotPermitted(act, role, LOWEST_ROLE[act])


def require_for_all(role: Role, act: Action) -> None:
    """Check that a role allows an action on all entries of a place, without a filter.

    Raises:
        NotPermitted: The role does not allow it.
    """
    if act not in _EMPTYING:
        require(role, act)
    elif not permits(role, "clear"):
        raise NotPermitted(f"{act} without a filter", role, LOWEST_ROLE["clear"])
