"""jobwire in FastAPI, Starlette, Litestar and other ASGI frameworks.

    web = FastAPI(lifespan=lifespan(app))

Routes enqueue with the asyncio methods: `await greet.aenqueue("Ada")`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from jobwire.application.aio import AsyncClient
from jobwire.application.app import App
from jobwire.application.config import CapsuleConfig, WorkerConfig

__all__ = ["client_of", "lifespan", "running"]


@asynccontextmanager
async def running(app: App, *, concurrency: int = 0, **settings: Any) -> AsyncIterator[App]:
    """Run jobwire inside an `async with` block, for a lifespan of your own.

    At the end it stops the worker, which puts back the jobs that do not end in time, and closes
    the connections of this event loop. Its log goes to that of the program, or, if the program has
    none for INFO of the logger `jobwire`, to standard error.

    Args:
        app: The application.
        concurrency: Number of jobs that this process runs at the same time; 0 for none. Several
            processes of a web server each run as many.
        **settings: Settings of `WorkerConfig`, such as `timeout`.

    Raises:
        ConfigError: A setting is invalid, or the application has no jobs.
        RedisTrouble: The worker cannot use its Redis.
    """
    try:
        if concurrency:
            async with _worker(app, concurrency, settings):
                yield app
        else:
            yield app
    finally:
        await app.aclose()


@asynccontextmanager
async def _worker(app: App, concurrency: int, settings: dict[str, Any]) -> AsyncIterator[None]:
    # Only a process that runs jobs needs them.
    from jobwire.worker.execute.joblog import set_up_own
    from jobwire.worker.process.announce import announce
    from jobwire.worker.process.launcher import Launcher

    app.load()
    capsule = CapsuleConfig(queues=dict.fromkeys(app.queues, 0), concurrency=concurrency)
    config = WorkerConfig(**{"capsules": {"default": capsule}, **settings})
    set_up_own()
    launcher = Launcher(app, config)
    announce(launcher, await asyncio.to_thread(launcher.start))
    try:
        yield
    finally:
        await asyncio.to_thread(launcher.stop)


def lifespan(
    app: App, *, concurrency: int = 0, **settings: Any
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return a lifespan for FastAPI, Starlette or Litestar; see `running`.

    FastAPI(lifespan=lifespan(app))            # also Starlette
    Litestar(lifespan=[lifespan(app)])
    FastAPI(lifespan=lifespan(app, concurrency=5))  # with a worker inside
    """

    @asynccontextmanager
    async def manage(host: Any) -> AsyncIterator[None]:
        async with running(app, concurrency=concurrency, **settings):
            yield

    return manage


def client_of(app: App) -> Callable[[], Awaitable[AsyncClient]]:
    """Return a dependency: the asyncio client, which also pushes classes that only Ruby has.

    Jobs = Annotated[AsyncClient, Depends(client_of(app))]  # FastAPI
    Litestar(dependencies={"jobs": Provide(client_of(app))})  # jobs: NamedDependency[AsyncClient]
    """

    async def client() -> AsyncClient:
        return app.aclient

    return client
