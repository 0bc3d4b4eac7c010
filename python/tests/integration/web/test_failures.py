"""The page of failures names the deployment after which a group began."""

from __future__ import annotations

from contextlib import closing

from starlette.testclient import TestClient

from harness.servers import Server
from jobwire.ops import Operations
from jobwire.web import Visitor, WebApp
from tests.integration.inspector.entries import NOW, payload

LABEL = "abc123 <b>\u202e"


def test_a_group_shows_the_deployment_before_it(server: Server) -> None:
    minute = NOW // 60 * 60
    with Operations(server.url, person="ada", role="admin", clock=lambda: minute) as operations:
        operations.mark_deploy(LABEL)
    error = {"error_message": "no", "retry_count": 0}
    early, late = (
        payload(name, error_class=name, failed_at=round((minute + seconds) * 1000), **error)
        for name, seconds in (("Early", -1), ("Late", 720))
    )
    server.client().zadd("retry", {early: 5, late: 6})
    app = WebApp(
        server.url, authorize=lambda request: Visitor("ada", "viewer"), clock=lambda: NOW + 3600
    )
    with closing(app), TestClient(app) as page:
        html = page.get("/failures").text
    rows = {
        name: html.partition(f"<strong>{name}")[2].partition("</tr>")[0]
        for name in ("Early", "Late")
    }
    assert "deployment" not in rows["Early"]
    assert "12 min after deployment <strong" in rows["Late"]
    assert ">abc123 &lt;b&gt;\\u202e</strong>" in rows["Late"]
