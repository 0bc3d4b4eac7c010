"""The shards of an application: their names and states, and those that do not answer now."""

from __future__ import annotations

import logging
import math
import os
import random
import re
import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from jobwire.connection.cluster import expand, is_cluster, keys_at
from jobwire.connection.sync import SyncRedis
from jobwire.errors import (
    ConfigError,
    NoReply,
    RedisRefused,
    RedisTrouble,
    RedisUnreachable,
)
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.placement import (
    Placement,
    States,
    by_turn,
    check_placement,
    newest,
    ranking,
    rotations,
    turn,
)
from jobwire.protocol.wire import Op, Step, command, once

__all__ = ["TIMEOUT_S", "Part", "Shards", "is_shard_name", "may_pass", "named"]

TIMEOUT_S = 1.0  # for a connection to a shard, and for its reply
SILENT_S = 0.25  # without any reply, after which a shard gets no jobs that others can take
PROBE_TIMEOUT_S = 0.5
FRESH_S = 5.0  # for which a program does not read the states again
FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 1.0  # between two looks at a shard that is away

Part: TypeAlias = tuple[str, Sequence[ReadyPayload], bool]
"""A shard, the jobs for it, and whether they may go to no other one."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_log = logging.getLogger("jobwire.client")


def is_shard_name(name: str) -> bool:
    """Return whether a shard may have a name."""
    return _NAME.fullmatch(name) is not None


def named(shards: Mapping[str, str] | Sequence[str] | str | None) -> dict[str, str]:
    """Return the shards by name; those of a list are `shard-1`, `shard-2`...

    One string is the URL of a cluster; see `expand`.

    Raises:
        ConfigError: A name or a URL is invalid.
    """
    if not shards:
        return {}
    if isinstance(shards, str):
        if not is_cluster(shards.strip()):
            raise ConfigError("shards: one string is given; write a list of URLs, or {'a': URL}")
        shards = expand(shards.strip())
    if not isinstance(shards, Mapping):
        shards = {f"shard-{number}": url for number, url in enumerate(shards, start=1)}
    given: Mapping[Any, Any] = shards
    for name, url in given.items():
        if not isinstance(name, str) or not is_shard_name(name):
            raise ConfigError(
                f"shards: {name!r} is not a name of letters, digits, '_', '.' and '-'"
            )
        if not isinstance(url, str) or "://" not in url:
            # The value is not shown, because it may be a password.
            raise ConfigError(
                f"shards: the value of {name!r} is not a URL; write one like redis://host:6379/0"
            )
    if len(set(shards.values())) < len(shards):
        raise ConfigError("shards: two of them have the same URL; leave one out")
    return dict(shards)


class Shards:
    """Knows which shards answer. Threads and event loops share it.

    A shard that failed gets no jobs that others can take, until a thread has seen it answer again.
    No push tries it meanwhile. A shard that is silent gets none until its next reply.

    Args:
        urls: Name to URL.
        placement: The rule for a job that shares nothing with others.
        namespace: Prefix of every key.

    Attributes:
        names: Their names.
        used: Those that get jobs.
        orders: Their `rotations`.
        served: Those that are not removed.
        epoch: Number of the last change of a state that this program knows.
        placement: The rule.
    """

    def __init__(self, urls: Mapping[str, str], placement: str, namespace: str) -> None:
        self.names = tuple(urls)
        self.placement: Placement = check_placement(placement)
        self._urls = dict(urls)
        self._namespace = namespace
        self._states: States = {}
        self._read_at = -math.inf  # monotonic
        self.used = self.served = self.names
        self.orders = rotations(self.used)
        self.epoch = 0
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._change = threading.Condition()  # guards the states, and all up to the thread
        self._away: dict[str, tuple[float, str]] = {}  # monotonic time, and the reason
        self._thread: threading.Thread | None = None
        # Calls without a reply. There is no lock: `append` and `pop` of a list are atomic.
        self._asked: dict[str, list[None]] = {name: [] for name in self.names}
        self._heard = dict.fromkeys(self.names, 0.0)  # monotonic; of the last reply

    def of(self, key: str) -> str:
        """Return the shard that must have the jobs with a key, even if it is away."""
        return ranking(key, self.used)[0]

    def choose(self, jid: str, without: Collection[str] = ()) -> str | None:
        """Return the shard for a job without a key; None if none of those left answers.

        Args:
            jid: The id of the job.
            without: Shards that this job has tried.
        """
        return self._first(turn(jid, self.orders), without)

    def quick(self, jobs: Sequence[ReadyPayload]) -> str | None:
        """Return the shard for a single job without a key, as most pushes are, in the usual case.

        None if there are several jobs or a key, if a shard is away, or if the states are due.
        """
        if (
            len(jobs) == 1
            and jobs[0].plain
            and self.placement == "spread"
            and not self._away
            and time.monotonic() - self._read_at < FRESH_S
        ):
            shard = turn(jobs[0].jid, self.orders)[0]
            if not (self._asked[shard] and self._silent(shard)):
                return shard
        return None

    def spread(self, jobs: Sequence[ReadyPayload], without: Collection[str] = ()) -> list[Part]:
        """Return the shards for jobs without a key.

        A job for which none of those left answers goes to the first one of its order.

        Args:
            jobs: The jobs.
            without: Shards that these jobs have tried.
        """
        parts: dict[tuple[str, bool], Sequence[ReadyPayload]] = {}
        for order, part in by_turn(jobs, self.orders):
            shard = self._first(order, without)
            place = (order[0], True) if shard is None else (shard, False)
            parts[place] = [*parts[place], *part] if place in parts else part
        return [(shard, part, last) for (shard, last), part in parts.items()]

    def _first(self, order: Sequence[str], without: Collection[str]) -> str | None:
        first = order[0]
        if not (without or self._away or (self._asked[first] and self._silent(first))):
            return first
        left = [name for name in order if name not in without and not self.away(name)]
        return next((name for name in left if not self._silent(name)), left[0] if left else None)

    @property
    def unread(self) -> bool:
        """True until a program has tried to read the states."""
        return self._read_at == -math.inf

    def is_due(self) -> bool:
        """Return whether the caller has to read the states now, and no other one for a while."""
        if time.monotonic() - self._read_at < FRESH_S:
            return False
        with self._change:
            due = time.monotonic() - self._read_at >= FRESH_S
            if due:
                self._read_at = time.monotonic()
            return due

    def learn(self, states: States) -> None:
        """Follow the states that a shard has, where they are newer than those that are known."""
        with self._change:
            self._states = known = newest([self._states, states])
            mine = [known[name] for name in self.names if name in known]
            if not mine:
                return
            self.epoch = max(state.epoch for state in mine)
            named = {name: known[name].name if name in known else "new" for name in self.names}
            used = tuple(name for name in self.names if named[name] == "used")
            if used != self.used:
                _log.info("shards that get jobs: %s", ", ".join(used or self.names))
            # Without any, jobs are better on some shard than nowhere.
            self.used = used or self.names
            self.orders = rotations(self.used)
            self.served = tuple(name for name in self.names if named[name] != "removed")

    def away(self, name: str) -> str:
        """Return the reason for which a shard gets no jobs now, or "" if it gets some."""
        away = self._away.get(name)
        if away is None:
            return ""
        return f"{away[1]} ({time.monotonic() - away[0]:.0f} s ago)"

    def take(self, name: str, step: Step) -> Op[Any]:
        """Take a step that calls a shard, and note its answer. An error names the shard.

        Raises:
            RedisUnreachable: It is known to be away; the step is not taken.
        """
        if name in self._away and (reason := self.away(name)):
            raise RedisUnreachable(f"shard {name!r} is away, so nothing was written: {reason}")
        asked = self._asked[name]
        if not asked:
            self._heard[name] = time.monotonic()
        asked.append(None)
        try:
            return (yield step)
        except RedisTrouble as error:
            self._blame(name, error)
            raise
        finally:
            self._heard[name] = time.monotonic()
            asked.pop()

    def _blame(self, name: str, error: RedisTrouble) -> None:
        reason = str(error)
        if isinstance(error, NoReply) or may_pass(error):
            self._leave_out(name, reason)
        if not reason.startswith("shard "):
            error.args = (f"shard {name!r}: {reason}", *error.args[1:])

    def close(self) -> None:
        """End the thread; all shards count as answering."""
        with self._change:
            self._away.clear()
            self._change.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=2 * PROBE_TIMEOUT_S)

    def _silent(self, name: str) -> bool:
        return bool(self._asked[name]) and time.monotonic() - self._heard[name] > SILENT_S

    def _leave_out(self, name: str, reason: str) -> None:
        with self._change:
            if name in self._away:
                return
            self._away[name] = time.monotonic(), reason
        _log.warning("shard %r is left out until it answers: %s", name, reason)
        self._watch()

    def _watch(self) -> None:
        with self._change:
            if self._away and self._thread is None:
                self._thread = threading.Thread(
                    target=self._look, name="jobwire-shards", daemon=True
                )
                self._thread.start()

    def _look(self) -> None:
        """Look at the shards that are away, until none is."""
        pause = FIRST_PAUSE_S
        while True:
            with self._change:
                self._change.wait_for(lambda: not self._away, pause * random.uniform(0.5, 1.0))
                away = dict(self._away)
                if not away:
                    self._thread = None
                    return
            pause = min(2 * pause, MAX_PAUSE_S)
            for name, (since, _) in away.items():
                if self._answers(name):
                    with self._change:
                        self._away.pop(name, None)
                    seconds = time.monotonic() - since
                    _log.info("shard %r answers again, after %.1f s", name, seconds)

    def _answers(self, name: str) -> bool:
        url = self._urls[name]
        schedule = keys_at(url, self._namespace).schedule
        redis = SyncRedis(url, timeout=PROBE_TIMEOUT_S, max_connections=1, role="shards")
        try:
            # A write without effect: the server may answer, and take no writes for a while.
            redis.run(once(command("ZADD", schedule, "XX", 0, "x")))
        except RedisTrouble as error:
            return not (isinstance(error, NoReply) or may_pass(error))
        finally:
            redis.close()
        return True


def may_pass(error: RedisTrouble) -> bool:
    """Return whether a server did nothing, and may do the same later."""
    if isinstance(error, RedisUnreachable):
        return not (error.refused or error.login_refused)
    return isinstance(error, RedisRefused) and error.temporary


_all: weakref.WeakSet[Shards] = weakref.WeakSet()


def _after_fork() -> None:
    for shards in [*_all]:  # their threads are in the parent, and their locks may be held
        shards._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
