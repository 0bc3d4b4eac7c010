"""The clients of an application: a blocking one, and an asyncio one for each event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from jobwire.application.aio import AsyncClient
from jobwire.application.client import Client
from jobwire.application.delivery import Transport
from jobwire.application.producer import MAX_PAYLOAD_BYTES, GenerationSetting
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.normalize import AsyncClientMiddleware, ClientMiddleware

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
    ) -> None:
        self.url = url
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
        self._via: ContextVar[str | None] = ContextVar("via", default=None)
        self._clients: dict[str | None, Client] = {}
        self._async_clients: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[str | None, AsyncClient]
        ] = weakref.WeakKeyDictionary()

    @property
    def client(self) -> Client:
        """The blocking client, made at its first use."""
        url = self._via.get() or self.url
        with self._lock:
            client = self._clients.get(url)
            if client is None:
                client = self._clients[url] = Client(url, **self._client_settings())
            return client

    @property
    def aclient(self) -> AsyncClient:
        """The asyncio client of the running event loop, made at its first use."""
        url = self._via.get() or self.url
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._async_clients:
                self._drop_dead()
            clients = self._async_clients.setdefault(loop, {})
            client = clients.get(url)
            if client is None:
                client = clients[url] = AsyncClient(url, **self._client_settings())
            return client

    def _drop_dead(self) -> None:
        """Drop the clients of loops that were closed and did not close them."""
        for loop in [loop for loop in self._async_clients if loop.is_closed()]:
            for client in self._async_clients.pop(loop).values():
                client.redis.abandon()

    def _client_settings(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "generation": self.generation,
            "strict_args": self.strict_args,
            "middleware": self._middleware,
            "wait_replicas": self.wait_replicas,
            "max_payload_bytes": self.max_payload_bytes,
            "compress_above": self.compress_above,
            "transport": self.transport,
            "buffer": self.buffer,
        }

    @contextmanager
    def via(self, url: str) -> Iterator[None]:
        """Enqueue to another Redis inside a `with` block, in this thread or task only.

            with app.via("redis://shard-b:6379/0"):
                greet.enqueue("Ada")

        This is for jobs that are spread over several servers, each with its own workers. The
        clients are kept, so use only a few different URLs.
        """
        token = self._via.set(url)
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

    def connect(self, url: str | None) -> None:
        """Use another Redis from now on; a worker calls this with its configured URL.

        None means the URL that the environment names.
        """
        with self._lock:
            self.url = url
            clients, self._clients = self._clients, {}
            self._async_clients.clear()
        for client in clients.values():
            client.close()

    async def aclose(self) -> None:
        """Close the asyncio clients of the running event loop, if there are any."""
        with self._lock:
            clients = self._async_clients.pop(asyncio.get_running_loop(), {})
        for client in clients.values():
            await client.close()
