"""The state of Redis that checks see while processes work."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

from harness.servers import Server
from jobwire_conformance.cases.match import Scope
from jobwire_conformance.run.state import State
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.wire.link import Link

JOB = '{"class":"JobwireEcho","args":[],"jid":"a1"}'


def test_a_job_on_its_way_is_in_one_place(server: Server) -> None:
    """Else a check would see none or two of it at times."""
    client: Any = server.client()
    client.lpush("queue:a", JOB)
    ended = threading.Event()

    def move() -> None:
        while not ended.is_set():
            client.lmove("queue:a", "queue:b", "RIGHT", "LEFT")
            client.lmove("queue:b", "queue:a", "RIGHT", "LEFT")

    link = Link(server.port)
    # Only these parts of a sandbox are needed to read Redis.
    sandbox = SimpleNamespace(link=link, config=SimpleNamespace(prefix=""), is_cluster=False)
    state = State(cast(Sandbox, sandbox), Scope(8, 0.0))
    mover = threading.Thread(target=move)
    mover.start()
    try:
        found = [len(state._places("a1")) for _ in range(500)]
    finally:
        ended.set()
        mover.join()
        link.close()
    assert found == [1] * 500
