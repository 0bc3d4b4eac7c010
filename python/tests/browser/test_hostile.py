"""Hostile text from Redis on every page: it runs nothing, and the page stays usable."""

from __future__ import annotations

import json
import random
import time

import pytest

from harness.servers import Server
from tests.browser.conftest import OpenPage, Serve

pytestmark = pytest.mark.browser

SCRIPT = "window.hacked = 1"
FRAGMENTS = [
    f"<script>{SCRIPT}</script>",
    f"<img src=x onerror='{SCRIPT}'>",
    f'"><svg onload="{SCRIPT}">',
    f"' autofocus onfocus='{SCRIPT}' x='",
    f"javascript:{SCRIPT}",
    f"</textarea></title></script><script>{SCRIPT}</script>",
    f"{{{{ {SCRIPT} }}}}",
    "{% raw %}",
    f'<a href="javascript:{SCRIPT}" id=main>x</a>',
    f"<iframe srcdoc='<script>parent.{SCRIPT}</script>'></iframe>",
    "<meta http-equiv=refresh content=0;url=//example.org>",
    "<base href=//example.org/>",
    "<form action=//example.org id=live><input name=token>",
    "<!--",
    "]]>",
    "&lt;script&gt;",
    "\u202etxet desrever",
    "\x1b[31mred\x1b[0m",
    "\x00",
    "../../..//example.org",
    "%2e%2e%2f",
    "?a=b&c=d#e",
    "é😀漢",
    "\ud800",
    "\n\r\nSet-Cookie: a=b",
    "word",
]
DRAW = random.Random(16)
STRINGS = [
    *FRAGMENTS,
    *("".join(DRAW.choices(FRAGMENTS, k=DRAW.randint(2, 6))) for _ in range(500 - len(FRAGMENTS))),
]


def job(text: str, number: int) -> bytes:
    """Return a payload with the text in every field that a page shows."""
    fields = {
        "class": text,
        "jid": text if number % 2 else f"{number:024x}",
        "args": [text, {text: text}],
        "queue": text,
        "tags": [text],
        "error_class": text,
        "error_message": text,
        "error_backtrace": [text],
        "wrapped": text if number % 3 else None,
        "created_at": time.time(),
        "failed_at": text if number % 5 else time.time(),
        "retry_count": number,
        text: text,
    }
    return json.dumps(fields).encode()


def name(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def fill(server: Server) -> None:
    client = server.client()
    pipeline = client.pipeline(transaction=False)
    for number, text in enumerate(STRINGS):
        for key in ("schedule", "retry", "dead"):
            pipeline.zadd(key, {job(text, number): time.time() - number})
        pipeline.zadd("jobwire:unreadable", {name(text): number})
        pipeline.sadd("queues", name(text))
        pipeline.lpush(b"queue:" + name(text), job(text, number))
        pipeline.lpush("queue:default", job(text, number))
        identity = name(text) + b":%d:0123456789ab" % number
        pipeline.sadd("processes", identity)
        info = {"hostname": text, "pid": number, "tag": text, "queues": [text], "labels": [text]}
        info |= {"started_at": time.time(), "concurrency": 5, "version": text, "identity": text}
        beat = {"info": json.dumps(info), "beat": time.time(), "busy": 1, "quiet": "false"}
        pipeline.hset(identity, mapping=beat)
        work = {"queue": text, "run_at": time.time(), "payload": job(text, number).decode()}
        pipeline.hset(identity + b":work", text.encode("utf-8", "replace"), json.dumps(work))
        day = time.strftime("%Y%m%d", time.gmtime())
        pipeline.hset(
            f"{day}-marks", time.strftime("%H:%M", time.gmtime()), text.encode("utf-8", "replace")
        )
        pipeline.xadd("jobwire:journal", {"who": name(text), "act": name(text), "what": name(text)})
    pipeline.execute()


def test_500_hostile_strings(server: Server, serve: Serve, open_page: OpenPage) -> None:
    """On each page that lists something, and on each that the lists link to; nothing runs."""
    fill(server)
    site = serve()
    page = open_page(f"{site}/")
    links = page.locator("nav a").evaluate_all("all => all.map(a => a.href)")
    assert len(links) >= 8
    seen: set[str] = set()
    for depth in (0, 1):
        found: set[str] = set()
        for link in sorted(set(links) - seen):
            seen.add(link)
            response = page.goto(link)
            assert response is not None
            assert response.status in (200, 400, 404), (link, response.status)
            assert page.evaluate("window.hacked") is None, link
            assert page.locator("#main").count() == page.locator("header nav.menu").count() == 1
            if depth == 0:
                hrefs = page.locator("main a").evaluate_all("all => all.map(a => a.href)")
                assert all(href.startswith(site) for href in hrefs), link
                found.update(hrefs[:40])
        links = sorted(found)
    assert len(seen) > 50
