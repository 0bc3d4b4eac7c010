"""The clients of an application: a blocking one, and an asyncio one for each event loop."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jobwire.application.aio import AsyncClient
from jobwire.application.client import Client
from jobwire.application.delivery import Transport
from jobwire.application.generation import GenerationSetting
from jobwire.application.payload_maker import MAX_PAYLOAD_BYTES
from jobwire.application.producer import make_producer
from jobwire.application.redis_url import find_address
from jobwire.application.sharded import AsyncShardedClient, ClientOf, ShardedClient, ShardedProducer
from jobwire.application.shards import TIMEOUT_S, Shards, is_shard_name, named
from jobwire.connection.connect import safe_url
from jobwire.errors import ConfigError
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import AsyncClientMiddleware, ClientMiddleware
from jobwire.protocol.placement import States

if TYPE_CHECKING:
    from jobwire.application.push_buffer import PushBuffer

__all__ = ["Clients"]


class Clients:
    """Makes clients at their first use, all with the same settings, and keeps them.

    It is the base of `App`, and the part of it that a `JobType` needs. Threads may share it.

    Args:
        url: URL of Redis; see `Client`.
        namespace: Prefix of every key. [KEY-4]
        generation: Generation of the times to write. [GEN-5]
        strict_args: Treatment of arguments for which JSON has no type.
        middleware: Client middleware, outermost first. [PUSH-7]
        wait_replicas: Number of replicas that must confirm a job; see `Client`.
        max_payload_bytes: Size of the largest payload to write; None for no limit. [PUSH-10]
        compress_above: Compress arguments of so many bytes or more; see `Client`.
        buffer: Keeps pushes while Redis is away; see `Client`. Each client has its own.
        redis: Further Redis servers, name to URL.
        shards: The servers that share the jobs, instead of `url`.
        placement: The rule for a job that shares nothing with others; see `Placement`.

    Attributes:
        redis: Name to URL of the further servers, and of the shards.
        served: Name of the Redis of the worker in this process; "": that of `url`.

    Raises:
        ConfigError: A name or URL in `redis` or `shards` is invalid, or `url` is given with shards.
    """

    def __init__(
        self,
        url: str | None,
        *,
        namespace: str,
        generation: GenerationSetting,
        strict_args: StrictArgs,
        middleware: Sequence[ClientMiddleware | AsyncClientMiddleware],
        wait_replicas: int,
        max_payload_bytes: int | None = MAX_PAYLOAD_BYTES,
        compress_above: int | None = None,
        buffer: PushBuffer | None = None,
        redis: Mapping[str, str] | None = None,
        shards: Mapping[str, str] | Sequence[str] | None = None,
        placement: str = "spread",
    ) -> None:
        self.url = url
        by_name = named(shards)
        if by_name and url is not None:
            raise ConfigError("shards: they take the place of url; leave one of both out")
        if twice := by_name.keys() & (redis or {}).keys():
            raise ConfigError(f"shards: {min(twice)!r} is also a name of redis; give it another")
        self.redis = {**_checked(redis or {}), **_checked(by_name)}
        self._shards = Shards(by_name, placement, namespace)
        self.served = ""
        self.namespace = namespace
        self.generation: GenerationSetting = generation
        self.strict_args: StrictArgs = strict_args
        self.wait_replicas = wait_replicas
        self.max_payload_bytes = max_payload_bytes
        self.compress_above = compress_above
        self.buffer = buffer
        self.transport = Transport()
        self._middleware = middleware
        self._lock = threading.Lock()  # guards `_clients` and `_async_clients`
        self._via: ContextVar[str] = ContextVar("via", default="")
        self._clients: dict[str, Client] = {}
        self._async_clients: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[str, AsyncClient]
        ] = weakref.WeakKeyDictionary()

    @property
    def shards(self) -> tuple[str, ...]:
        """Names of the shards; none if the jobs have one Redis, as after `connect`."""
        return () if self.url is not None else self._shards.names

    def shard_of(self, key: str) -> str:
        """Return the shard of a key, for `via`: the same one as long as the shards are the same.

        The first call in a process asks a shard which of them get jobs.

            with app.via(app.shard_of(f"tenant {tenant.id}")):
                bill.enqueue(tenant.id)

        Raises:
            ConfigError: The application has no shards.
        """
        if not self.shards:
            raise ConfigError("the application has no shards; write App(shards=[URL, URL])")
        if self._shards.unread:
            self.follow_states()
        return self._shards.of(key)

    @property
    def served_shards(self) -> tuple[str, ...]:
        """Names of the shards that are not removed, as far as this process knows."""
        return self.shards and self._shards.served

    @property
    def shard_epoch(self) -> int:
        """Number of the last change of the state of a shard that this process knows."""
        return self._shards.epoch

    def follow_states(self) -> None:
        """Read the states of the shards, unless this process has done so a moment ago."""
        if self.shards:
            self.client_of("")._produce(lambda each: cast("ShardedProducer", each).follow())

    def learn_states(self, states: States) -> None:
        """Follow the states of the shards, which a worker has read."""
        self._shards.learn(states)

    @property
    def client(self) -> Client:
        """The blocking client, made at its first use."""
        return self.client_of(self.choose(""))

    @property
    def aclient(self) -> AsyncClient:
        """The asyncio client of the running event loop, made at its first use."""
        return self.aclient_of(self.choose(""))

    def choose(self, redis: str) -> str:
        """Return the Redis for a push: that of the `via` around the call, or else the given one."""
        return self._via.get() or redis

    def place(self, redis: str) -> str:
        """Return the Redis for all parts of one thing: a shard that answers, unless one is given.

        Args:
            redis: The answer of `choose`.
        """
        if not self._is_sharded(redis):
            return redis
        return self.client_of("")._produce(lambda each: cast("ShardedProducer", each).place())

    async def aplace(self, redis: str) -> str:
        """Return the Redis for all parts of one thing; see `place`."""
        if not self._is_sharded(redis):
            return redis
        client = self.aclient_of("")
        return await client._produce(lambda each: cast("ShardedProducer", each).place())

    def _choose_all(self) -> tuple[str, ...]:
        """Return each Redis that may have a batch."""
        return (self.choose(""),) if self._via.get() else self.served_shards or ("",)

    def client_of(self, redis: str) -> Client:
        """Return the blocking client of a Redis, also inside a `via` of another one.

        Args:
            redis: Its name or URL; "": that of `url`.

        Raises:
            ConfigError: It is neither a URL nor a name of this application.
        """
        if (client := self._clients.get(redis)) is not None:
            return client
        with self._lock:
            client = self._clients.get(redis)
            if client is None and self._is_sharded(redis):
                client = ShardedClient(*self._sharded(self.client_of))
            elif client is None:
                client = Client(self.url_of(redis), **self._client_settings(redis))
            self._clients[redis] = client
            return client

    def aclient_of(self, redis: str) -> AsyncClient:
        """Return the asyncio client of the running event loop; see `client_of`."""
        loop = asyncio.get_running_loop()
        if (client := self._async_clients.get(loop, {}).get(redis)) is not None:
            return client
        with self._lock:
            if loop not in self._async_clients:
                self._drop_dead()
            clients = self._async_clients.setdefault(loop, {})
            client = clients.get(redis)
            if client is None and self._is_sharded(redis):
                client = AsyncShardedClient(*self._sharded(self.aclient_of))
            elif client is None:
                client = AsyncClient(self.url_of(redis), **self._client_settings(redis))
            clients[redis] = client
            return client

    def _is_sharded(self, redis: str) -> bool:
        return not redis and bool(self.shards)

    def _sharded(self, client_of: ClientOf) -> tuple[Shards, ClientOf, ShardedProducer]:
        """Return what a client of all shards is made of."""
        producer = make_producer(
            *(Keys(self.namespace), self.generation, self.strict_args, self._middleware),
            transport=self.transport,
            max_payload_bytes=self.max_payload_bytes,
            compress_above=self.compress_above,
            make=partial(ShardedProducer, self._shards, client_of),
        )
        return self._shards, client_of, cast(ShardedProducer, producer)

    def url_of(self, redis: str) -> str | None:
        """Return the URL of a Redis, given by its name, by "" or by the URL itself.

        Raises:
            ConfigError: It is neither a URL nor a name of this application.
        """
        if not redis:
            return self.url
        if redis in self.redis:
            return self.redis[redis]
        if "://" in redis:
            return redis
        known = ", ".join(sorted(self.redis)) or "none"
        raise ConfigError(
            f"redis {redis!r} is neither a URL nor a name of this application (its names: {known});"
            f" add App(redis={{{redis!r}: URL}})"
        )

    def name_of(self, redis: str) -> str:
        """Return the name of a Redis that is given by its name or URL; a new URL unchanged.

        Raises:
            ConfigError: It is neither a URL nor a name of this application.
        """
        url = self.url_of(redis)
        return next(
            (name for name in self.redis if redis == name or self.redis[name] == url), redis
        )

    def _drop_dead(self) -> None:
        """Drop the clients of loops that were closed and did not close them."""
        for loop in [loop for loop in self._async_clients if loop.is_closed()]:
            for client in self._async_clients.pop(loop).values():
                client.redis.abandon()

    def _client_settings(self, redis: str) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        buffer = self.buffer
        if redis in self.shards:
            settings["timeout"] = TIMEOUT_S
        if redis and buffer is not None and buffer.spool is not None:
            # The jobs that a process left there are written to this Redis, and to no other one.
            buffer = replace(buffer, spool=Path(buffer.spool) / _directory_of(redis))
        return settings | {
            "location": redis,
            "namespace": self.namespace,
            "generation": self.generation,
            "strict_args": self.strict_args,
            "middleware": self._middleware,
            "wait_replicas": self.wait_replicas,
            "max_payload_bytes": self.max_payload_bytes,
            "compress_above": self.compress_above,
            "transport": self.transport,
            "buffer": buffer,
        }

    @contextmanager
    def via(self, redis: str) -> Iterator[None]:
        """Enqueue to another Redis inside a `with` block, in this thread or task only.

            with app.via("shard-b"):
                greet.enqueue("Ada")

        This is for jobs that are spread over several servers, each with its own workers. It also
        overrides the Redis of a job type. The clients are kept, so use only a few different URLs.

        Args:
            redis: A name of `App(redis=...)`, or a URL.

        Raises:
            ConfigError: It is neither a URL nor a name of this application.
        """
        token = self._via.set(self.name_of(redis))
        try:
            yield
        finally:
            self._via.reset(token)

    def close(self) -> None:
        """Close the connections of the blocking clients; the next job opens new ones."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()
        self._shards.close()

    def connect(self, url: str | None, *, named: Mapping[str, str] | None = None) -> None:
        """Use another Redis from now on; a worker calls this with its configured URL.

        Args:
            url: The URL; None: the one that the environment names.
            named: New URLs of the named servers, such as one for all in a test.
        """
        with self._lock:
            self.url = url
            self.redis = self.redis if named is None else dict(named)
            clients, self._clients = self._clients, {}
            self._async_clients.clear()
        for client in clients.values():
            client.close()

    def serve(self, redis: str) -> None:
        """Make this process a worker of a Redis: a named one, or the default from now on."""
        name, url = self.name_of(redis), self.url_of(redis)
        if name in self.shards or (name in self.redis and url != find_address(self.url).url):
            self.served = name
        else:
            self.connect(url)

    async def aclose(self) -> None:
        """Close the asyncio clients of the running event loop, if there are any."""
        with self._lock:
            clients = self._async_clients.pop(asyncio.get_running_loop(), {})
        for client in clients.values():
            await client.close()


def _directory_of(redis: str) -> str:
    """Return the name of the directory for the spool of a Redis, given by its name or URL."""
    if is_shard_name(redis) and redis.strip("."):
        return redis
    shown = safe_url(redis) if "://" in redis else redis
    return f"redis-{hashlib.sha256(shown.encode()).hexdigest()[:16]}"


def _checked(redis: Mapping[Any, Any]) -> dict[str, str]:
    """Return the named servers.

    Raises:
        ConfigError: A name or URL is invalid.
    """
    for name, url in redis.items():
        if not isinstance(name, str) or not name or not name.isprintable() or "://" in name:
            raise ConfigError(
                f"redis: {name!r} is not a name of a Redis; write redis={{'mail': URL}}"
            )
        if name == "default":
            raise ConfigError("redis: 'default' is the Redis of url; write App(URL, redis=...)")
        if not isinstance(url, str) or "://" not in url:
            raise ConfigError(
                f"redis: {url!r} of {name!r} is not a URL; write one like redis://localhost:6379/1"
            )
    return dict(redis)
