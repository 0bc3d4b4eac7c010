"""The clients of an application: a blocking one, and an asyncio one for each event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jobwire.application.aio import AsyncClient
from jobwire.application.client import Client
from jobwire.application.delivery import Transport
from jobwire.application.producer import GenerationSetting
from jobwire.protocol.arguments import StrictArgs
from jobwire.protocol.normalize import AsyncClientMiddleware, ClientMiddleware

__all__ = ["Clients"]


class Clients:
    """Makes clients when they are first used, all with the same settings, and keeps them.

    The base of `App`, and all of it that a `JobType` needs. Safe to share between threads.

    Args:
        url: Where Redis is; see `Client`.
        namespace: Prefix of every key. [KEY-4]
        generation: How to write times. [GEN-5]
        strict_args: What to do with arguments that JSON does not have.
        middleware: Client middleware, outermost first. [PUSH-7]
        wait_replicas: How many replicas have to have a job; see `Client`.
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
    ) -> None:
        self.url = url
        self.namespace = namespace
        self.generation: GenerationSetting = generation
        self.strict_args: StrictArgs = strict_args
        self.wait_replicas = wait_replicas
        self.transport = Transport()
        self._middleware = middleware
        self._lock = threading.Lock()  # guards the fields below
        self._via: ContextVar[str | None] = ContextVar("via", default=None)
        self._clients: dict[str | None, Client] = {}
        self._async_clients: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[str | None, AsyncClient]
        ] = weakref.WeakKeyDictionary()

    @property
    def client(self) -> Client:
        """The blocking client, made when first used."""
        url = self._via.get() or self.url
        with self._lock:
            client = self._clients.get(url)
            if client is None:
                client = self._clients[url] = Client(url, **self._client_settings())
            return client

    @property
    def aclient(self) -> AsyncClient:
        """The asyncio client of the running event loop, made when first used."""
        url = self._via.get() or self.url
        with self._lock:
            clients = self._async_clients.setdefault(asyncio.get_running_loop(), {})
            client = clients.get(url)
            if client is None:
                client = clients[url] = AsyncClient(url, **self._client_settings())
            return client

    def _client_settings(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "generation": self.generation,
            "strict_args": self.strict_args,
            "middleware": self._middleware,
            "wait_replicas": self.wait_replicas,
            "transport": self.transport,
        }

    @contextmanager
    def via(self, url: str) -> Iterator[None]:
        """Enqueue to another Redis inside of a `with` block, in this thread or task alone.

            with app.via("redis://shard-b:6379/0"):
                greet.enqueue("Ada")

        For jobs that are spread over several servers, each of which has workers of its own. The
        clients are kept, so use the same few URLs again.
        """
        token = self._via.set(url)
        try:
            yield
        finally:
            self._via.reset(token)

    def close(self) -> None:
        """Close the blocking clients' connections; the next job opens new ones."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def connect(self, url: str | None) -> None:
        """Use another Redis from now on; a worker does this with the URL it was given.

        None is the one that the environment names.
        """
        with self._lock:
            self.url = url
            clients, self._clients = self._clients, {}
            self._async_clients.clear()
        for client in clients.values():
            client.close()

    async def aclose(self) -> None:
        """Close the asyncio clients of the running event loop, if any were made."""
        with self._lock:
            clients = self._async_clients.pop(asyncio.get_running_loop(), {})
        for client in clients.values():
            await client.close()
