"""Several clients at once on one server, in every order of their commands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.servers import Server
from jobwire.connection.resources import script
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits, kill
from jobwire.protocol.keys import Keys
from jobwire.protocol.promotion import Promoted, promote_batch
from jobwire.protocol.wire import dialogue, once
from tests.profiles import examples

KEYS = Keys()
NOW = 1_795_192_067.5

many = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def redis(server: Server) -> Iterator[SyncRedis]:
    shell = SyncRedis(server.url)
    yield shell
    shell.close()


class Promoter:
    """A promoter of one batch after the other, which sends one message at a time."""

    def __init__(self, redis: SyncRedis, zset: str) -> None:
        self._redis = redis
        self._zset = zset
        self.moved = self.buried = 0
        self._talk = self._begin()
        self._message = next(self._talk)

    def _begin(self) -> Any:
        dead_limits = DeadSetLimits(NOW)
        op = promote_batch(
            KEYS, self._zset, now=NOW, generation=8, dead_limits=dead_limits, limit=3
        )
        return dialogue(op, script)

    def step(self) -> None:
        """Send one message, and keep its answer."""
        replies = self._redis._answer(self._message)
        try:
            self._message = self._talk.send(replies)
        except StopIteration as done:
            result: Promoted = done.value
            self.moved += result.moved
            self.buried += len(result.killed)
            self._talk = self._begin()
            self._message = next(self._talk)


members = st.lists(
    st.tuples(st.sampled_from(["due", "later", "broken", "array"]), st.integers(0, 2)), max_size=12
)


@many
@given(members=members, turns=st.lists(st.integers(0, 2), max_size=60))
def test_promoters_in_any_order_move_each_member_once(
    server: Server, redis: SyncRedis, members: list[tuple[str, int]], turns: list[int]
) -> None:
    """SCHED-5, SCHED-7, SCHED-9, EXEC-4: in any interleaving of their commands."""
    client = server.client()
    client.flushall()
    texts: dict[str, list[bytes]] = {"due": [], "later": [], "broken": [], "array": []}
    for number, (kind, queue) in enumerate(members):
        text = {
            "broken": f"{{{number}",
            "array": f"[{number}]",
        }.get(kind) or json.dumps(
            {"class": "A", "args": [], "jid": str(number), "queue": f"q{queue}"}
        )
        texts[kind].append(text.encode())
        client.zadd("schedule", {text: NOW + 60 if kind == "later" else NOW - number % 3})
    promoters = [Promoter(redis, "schedule") for _ in range(3)]
    for turn in turns:
        promoters[turn].step()
    for promoter in promoters * 30:  # then each of them finishes
        promoter.step()

    assert set(client.zrange("schedule", 0, -1)) == set(texts["later"])
    arrived = [
        json.loads(text)["jid"] for n in range(3) for text in client.lrange(f"queue:q{n}", 0, -1)
    ]
    assert Counter(arrived) == Counter(json.loads(text)["jid"] for text in texts["due"])
    assert set(client.zrange("dead", 0, -1)) == set(texts["broken"])
    assert set(client.zrange("jobwire:unreadable", 0, -1)) == set(texts["array"])
    assert sum(promoter.moved for promoter in promoters) == len(texts["due"])
    assert sum(promoter.buried for promoter in promoters) == len(texts["broken"] + texts["array"])


burials = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30)), max_size=25)


@many
@given(burials=burials, limit=st.integers(1, 12), max_age=st.integers(1, 300))
def test_a_grave_holds_the_newest_that_are_not_too_old(
    server: Server,
    redis: SyncRedis,
    burials: list[tuple[int, int]],
    limit: int,
    max_age: int,
) -> None:
    """DEAD-1, DEAD-2, DEAD-3: the model is a dict from member to time of death."""
    client = server.client()
    client.flushall()
    model: dict[bytes, float] = {}
    now = 0.0
    for passed, name in burials:
        now += passed
        text = b'{"n":%d}' % name
        redis.run(once(kill(KEYS.dead, text, DeadSetLimits(now, limit, max_age))))
        model[text] = now
        model = {text: at for text, at in model.items() if at > now - max_age}
        kept = sorted(model.items(), key=lambda item: (item[1], item[0]))[-(limit - 1) :]
        model = dict(kept) if limit > 1 else {}
    assert dict(client.zrange("dead", 0, -1, withscores=True)) == model
