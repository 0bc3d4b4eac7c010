"""Namespaces and odd names in the inspector."""

from __future__ import annotations

from typing import Any

from harness.servers import Server
from jobwire import Client
from jobwire.inspect import Inspector
from tests.integration.inspector.entries import payload


def test_a_namespace_is_a_world_of_its_own(server: Server, client: Any) -> None:
    """KEY-4: every key has the prefix."""
    with (
        Client(server.url, namespace="{x}:") as pusher,
        Inspector(server.url, namespace="{x}:") as inspector,
    ):
        pusher.push("A", [1])
        pusher.push_in(100, "A", [2])
        assert (inspector.stats().enqueued, inspector.stats().scheduled) == (1, 1)
        inspector.sweep("schedule", "retry")
        (job, _) = inspector.jobs("default")
        inspector.delete(job)
        inspector.pause("default")
        inspector.cancel("j")
        inspector.mark_deploy("v")
        inspector.clear_queue("default")
    assert all(key.startswith(b"{x}:") for key in client.keys("*"))


def test_names_that_are_no_utf_8(inspector: Any, client: Any) -> None:
    """INSP-3, INSP-28: the name is shown, and found under the same bytes."""
    client.sadd("queues", b"caf\xe9")
    client.lpush(b"queue:caf\xe9", payload("a"))
    (queue,) = inspector.queues()
    assert queue.size == 1
    (job,) = inspector.jobs(queue.name)
    assert inspector.delete(job)
    assert inspector.clear_queue(queue.name) == 0
    assert client.exists("queues") == 0
