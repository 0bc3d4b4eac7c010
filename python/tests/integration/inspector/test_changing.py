"""Changes that the inspector makes: to single entries, and to all that a filter selects."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from harness.servers import Server
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError, MalformedPayload, RedisRefused
from jobwire.inspect import Filter, Swept, sets
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import At, Batch, Local, Script, Together, once
from tests.integration.inspector.entries import NOW, payload


def test_what_cannot_be_pushed_stays(inspector: Any, client: Any) -> None:
    """INSP-23: the entry stays, and the error names the reason."""
    client.set("queue:bad", "no list")
    client.zadd("retry", {payload("a", queue="bad"): 1, b"{broken": 2, payload("c", queue=7): 3})
    for entry in list(inspector.entries("retry")):
        with pytest.raises((RedisRefused, MalformedPayload)):
            inspector.retry(entry)
    assert client.zcard("retry") == 3
    swept = inspector.sweep("retry", "retry")
    assert (swept.seen, swept.done, swept.left) == (3, 0, 3)
    assert client.zcard("retry") == 3
    client.lpush("queue:q", payload("q"))
    (job,) = inspector.jobs("q")
    with pytest.raises(ConfigError, match="queue:q"):
        inspector.kill(job)


def test_pausing(inspector: Any, client: Any) -> None:
    """REL-9: bare names in a set."""
    client.sadd("queues", "a")
    assert inspector.pause("a")
    assert not inspector.pause("a")
    assert client.smembers("jobwire:paused") == {b"a"}
    assert inspector.queue("a").paused
    assert inspector.unpause("a")
    assert not inspector.unpause("a")
    assert not inspector.queues()[0].paused


@pytest.mark.parametrize("score", [float, lambda n: 7.0], ids=["spread", "same"])
@pytest.mark.parametrize("action", ["retry", "add_to_queue", "kill", "delete"])
def test_changing_those_that_a_filter_means(
    inspector: Any, client: Any, action: str, score: Callable[[int], float]
) -> None:
    """INSP-4 to INSP-7, INSP-15: only entries that match, in pages; others keep their place."""
    members = {
        payload(f"j{n:06}", **({"tags": ["x"]} if n % 3 == 0 else {})): score(n) for n in range(700)
    }
    client.zadd("schedule", members)
    steps: list[Swept] = []
    swept = inspector.sweep("schedule", action, only=Filter(tag="x"), progress=steps.append)
    assert (swept.total, swept.seen, swept.matched, swept.done, swept.left) == (
        700,
        700,
        234,
        234,
        0,
    )
    assert [step.seen for step in steps] == [100, 200, 300, 400, 500, 600, 700]
    rest = dict(client.zrange("schedule", 0, -1, withscores=True))
    assert rest == {text: at for text, at in members.items() if b"tags" not in text}
    where = {"kill": client.zcard("dead"), "delete": 234}
    assert where.get(action, client.llen("queue:default")) == 234


def test_whole_pages_go_behind_pages_that_stay(inspector: Any, client: Any) -> None:
    """INSP-4: with one score for all entries, where only the bytes give an order."""
    client.zadd("schedule", {payload(f"j{n:06}", args=[n >= 150]): 7 for n in range(650)})
    swept = inspector.sweep("schedule", "delete", only=Filter(text="[true]"))
    assert (swept.seen, swept.done) == (650, 500)
    assert client.zcard("schedule") == 150


def test_what_is_dead_is_not_killed_again(inspector: Any) -> None:
    """INSP-7: otherwise the loop would never end."""
    for name in ("dead", "unreadable"):
        with pytest.raises(ConfigError, match="already dead"):
            inspector.sweep(name, "kill")


@pytest.mark.matrix
def test_retrying_very_many_takes_little_at_a_time(server: Server, client: Any) -> None:
    """100,000 entries in pages of 100: no reply and no call is longer than that.

    INSP-5, INSP-26.
    """
    pipe = client.pipeline(transaction=False)
    for start in range(0, 100_000, 10_000):
        numbers = range(start, start + 10_000)
        pipe.zadd("retry", {payload(f"j{n:06}", retry_count=0): n for n in numbers})
    pipe.execute()
    shell = SyncRedis(server.url)
    op = sets.sweep(Keys(), "retry", "retry", dead_limits=DeadSetLimits(NOW), only=Filter())
    longest_call = longest_reply = scripts = 0
    reply: Any = None
    try:
        while True:
            step = op.send(reply)
            reply = shell.run(once(step))
            assert not isinstance(step, Local | At | Together)
            each = list(step.steps) if isinstance(step, Batch) else [step]
            scripts += sum(isinstance(one, Script) for one in each)
            longest_call = max(longest_call, *(len(one.args) for one in each))
            replies = reply if isinstance(reply, list) else [reply]
            longest_reply = max(
                longest_reply, *(len(one) if isinstance(one, list) else 1 for one in replies), 0
            )
    except StopIteration as done:
        swept = done.value
    shell.close()
    assert swept.done == swept.total == 100_000
    assert (client.zcard("retry"), client.llen("queue:default")) == (0, 100_000)
    assert scripts == 1_000
    assert longest_call == 400  # a page of fours
    assert longest_reply == 200  # a page of pairs
    # The job that was due first runs first.
    assert json.loads(client.lindex("queue:default", -1))["jid"] == "j000000"
