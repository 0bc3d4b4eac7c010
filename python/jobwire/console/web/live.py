"""Updates of an open page and outputs of jobs, by server-sent events."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from jobwire.application.aio import AsyncClient
from jobwire.errors import OutputGap, RedisTrouble
from jobwire.protocol.output import OutputItem, Tail

__all__ = ["MAX_STREAMS", "Streams", "UpdateResponse", "output_events", "stream"]

MAX_STREAMS = 200  # open pages that are updated, at a time
LIFE_S = 300.0  # then the browser connects again, so a visitor that lost access sees no more
PING_S = 15.0  # proxies close connections that are silent for longer


class Streams:
    """Counts the open streams."""

    def __init__(self, most: int = MAX_STREAMS) -> None:
        self._most = most
        self.open = 0
        self.scopes: set[anyio.CancelScope] = set()

    def take(self) -> bool:
        """Take a place; False if there is none."""
        if self.open >= self._most:
            return False
        self.open += 1
        return True

    def give_back(self) -> None:
        """Give a place back."""
        self.open -= 1

    def end(self) -> None:
        """End all streams, in the thread of the event loop; browsers connect again."""
        for scope in list(self.scopes):
            scope.cancel()


class UpdateResponse(StreamingResponse):
    """An answer that never ends by itself; it gives its place back in every case.

    It always listens for the end of the connection, because not every server tells it when the
    response is sent. A client may be gone before the first event, so the iterator of the events
    cannot give the place back: it may never have begun.

    Args:
        events: The text of the events.
        streams: Gets the place back at the end.
    """

    def __init__(self, events: AsyncIterator[str], streams: Streams) -> None:
        super().__init__(
            events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the client goes away."""
        started = over = False

        async def watched(message: Message) -> None:
            nonlocal started, over
            await send(message)
            started = True
            over = message["type"] == "http.response.body" and not message.get("more_body", False)

        try:
            async with anyio.create_task_group() as group:
                self._streams.scopes.add(group.cancel_scope)

                async def until_sent() -> None:
                    nonlocal over
                    try:
                        await self.stream_response(watched)
                    except OSError:  # the connection is closed
                        over = True
                    group.cancel_scope.cancel()

                group.start_soon(until_sent)
                await self.listen_for_disconnect(receive)
                over = True
                group.cancel_scope.cancel()
            if started and not over:  # `Streams.end`
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.scopes.discard(group.cancel_scope)
            self._streams.give_back()


async def stream(
    parts: Callable[[], Awaitable[dict[str, str]]], *, refresh: float
) -> AsyncIterator[str]:
    """Yield an event with the parts of a page that changed since the last one.

    Args:
        parts: Returns the parts: the id of an element to its HTML.
        refresh: Seconds between two looks.
    """
    known: dict[str, str] = {}
    silent = 0.0
    yield f"retry: {refresh * 1000:.0f}\n\n"
    for _ in range(int(LIFE_S / refresh)):
        changed = {}
        for name, html in (await parts()).items():
            digest = hashlib.sha256(html.encode("utf-8", "replace")).hexdigest()
            if known.get(name) != digest:
                known[name] = digest
                changed[name] = html
        if changed:
            yield f"event: parts\ndata: {json.dumps(changed)}\n\n"
            silent = 0.0
        elif silent >= PING_S:
            yield ": ping\n\n"
            silent = 0.0
        silent += refresh
        await asyncio.sleep(refresh)


async def output_events(
    client: AsyncClient, tail: Tail, show: Callable[[Any], Any]
) -> AsyncIterator[str]:
    """Yield an event for each item of an output, with its position as the id of the event.

    So a browser that connects again names the last one that it has. An event `gap` has the number
    of lost items, and `end` is the last one. No poll: the server of Redis tells of new items.

    Args:
        client: Reads the output.
        tail: The reader.
        show: Returns the value of an item as the visitor may see it.
    """

    def event(item: OutputItem) -> str:
        return f"id: {item.position}\ndata: {json.dumps(show(item.value))}\n\n"

    yield "retry: 1000\n\n"
    end = time.monotonic() + LIFE_S
    while time.monotonic() < end:
        try:
            items = await client.read_output(tail, PING_S)
        except OutputGap as gap:
            yield f"event: gap\nid: {gap.position}\ndata: {json.dumps(gap.lost)}\n\n"
            continue
        except RedisTrouble:
            return  # the browser connects again
        if items:
            yield "".join(map(event, items))
        elif tail.over:
            yield f"event: end\nid: {tail.position}\ndata: null\n\n"
            return
        else:
            yield ": ping\n\n"
