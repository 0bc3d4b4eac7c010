"""The permissions in docs/how-to/operate.md are enough for all actions, and all are needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from harness.servers import Server
from jobwire.inspect import Filter
from jobwire.ops import Operations, Selection
from jobwire.protocol.keys import Keys
from jobwire.protocol.permissions import of_scripts
from tests.integration.inspector.entries import IDENTITY, payload
from tests.integration.ops.test_actions import CALLS, prepare
from tests.integration.test_acl import ROLES, as_user, denied

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "operate.md"
SECTION = PAGE.read_text("utf-8").partition("## Permissions of the Redis user\n")[2]
LISTED = re.findall(r"`([a-z]+)`", SECTION)


def play(operations: Operations, client: Any) -> None:
    """Call every method, each undo in every way."""
    for call in CALLS.values():
        client.delete("retry", "queue:q")
        prepare(client)
        call(operations)
    client.hset(f"jobwire:private:{IDENTITY}", "1:q", payload("held"))
    client.zadd("retry", {payload("due"): 1})
    for jid in ("due", "held", "nowhere"):
        operations.explain(jid)
    operations.groups()
    operations.doctor()
    for keep in (False, True):
        for place in ("retry", "queue:q"):
            client.delete("retry", "queue:q")
            prepare(client)
            client.lpush("queue:q", payload("other"), payload("third"))
            chosen = Selection(place=place, only=Filter(jid="other" if keep else None))
            operations.preview(chosen)
            *_, state = operations.bulk("delete", chosen)
            if state.undo:
                operations.undo(state.undo)
            undo_id = operations.clear(place).undo
            if keep:
                prepare(client)
            operations.undo(undo_id)
    (job, *_) = operations.inspector.jobs("q")
    deleted = operations.delete(job)
    client.delete("queue:q")
    operations.undo(deleted.undo)
    operations.unpause("nothing")  # an action that changes nothing
    operations.journal()


def test_the_listed_permissions_are_enough(server: Server) -> None:
    """SEC-3: no command is denied, and each listed command is used."""
    client = server.client()
    roles = f"{ROLES['inspector read']} {ROLES['inspector write']}"
    user = as_user(server, f"{roles} {' '.join(f'+{name}' for name in LISTED)}")
    with Operations(user.url, role="admin") as operations:
        play(operations, client)
    # The doctor tries these, and does without them.
    granted = {word[1:] for word in roles.split() if word.startswith("+")}
    tried = {"memory|usage", "dbsize", "time", "ping", "discard", "incrby"}
    tried |= {str(step.args[0]).lower() for step in of_scripts(Keys(), "a", "q")} - granted
    assert denied(server) - {f"command {name}" for name in tried} == set()
    assert {*LISTED} & granted == set()
    used = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert {*LISTED} - used == set()
