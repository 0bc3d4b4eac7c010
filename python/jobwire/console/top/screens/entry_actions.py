"""Actions on one entry, which lists and the page of a job share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobwire.console.ops.roles import Action
from jobwire.console.top.data_screen import DataScreen
from jobwire.console.top.dialogs import AskLine
from jobwire.console.top.styled_text import shown
from jobwire.errors import ConfigError
from jobwire.inspect.entry import Entry
from jobwire.inspect.formats import duration, seconds

__all__ = ["POSSIBLE", "act_on_entry"]

# The actions on one entry that a place allows. The jobs of a queue run anyway.
POSSIBLE: dict[str, tuple[Action, ...]] = {
    "retry": ("retry", "kill", "delete", "reschedule"),
    "schedule": ("add_to_queue", "delete", "reschedule"),
    "dead": ("retry", "delete"),
    "unreadable": ("delete",),
}
DONE = {
    "retry": "retried",
    "add_to_queue": "added to its queue",
    "kill": "killed",
    "delete": "deleted",
}


async def act_on_entry(data_screen: DataScreen[Any], act: Action, one: Entry, where: str) -> bool:
    """Do an action on one entry, after a question if it is not harmless; True if it changed it."""
    operations = data_screen.context.operations
    name = shown(f"{one.display_class or 'the entry'} {one.jid or ''}", 80)
    if act in ("kill", "delete") and not await data_screen.confirmed(f"{act.capitalize()} {name}?"):
        return False
    call: Callable[[], bool]
    if act == "reschedule":
        span = await data_screen.app.push_screen_wait(
            AskLine(f"Due in how long: {name}", hint="90 (seconds), 15m, 2h, 30d")
        )
        if span is None:
            return False
        try:
            delay = seconds(span)
        except ConfigError as error:
            data_screen.warn(str(error))
            return False
        at = data_screen.context.clock() + delay
        call, done = lambda: operations.reschedule(one, at), f"due in {duration(delay)}"
    elif act == "delete":
        call, done = lambda: operations.delete(one).count > 0, DONE[act]
    else:
        changes = {
            "retry": operations.retry,
            "add_to_queue": operations.add_to_queue,
            "kill": operations.kill,
        }
        call, done = lambda: changes[act](one), DONE[act]
    changed = await data_screen.attempt(call)
    if changed is None:
        return False
    if changed:
        data_screen.tell(f"{name}: {done}")
    else:
        data_screen.warn(f"{name} is gone from {where}; nothing was changed")
    return changed
