"""jobwire.sentry: the events that it sends, in the trace that a push in Ruby began."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from harness.servers import Server, wait_until
from tests.workers import Workers

TRACE = "0af7651916cd43dd8448eb211c80319c"


def sent(directory: Path) -> list[dict[str, Any]]:
    """Return the events that the worker has sent."""
    file = directory / "envelopes"
    text = file.read_text() if file.exists() else ""
    # Without a last line that is still being written.
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_errors_and_transactions_belong_to_the_trace_of_the_push(
    server: Server, workers: Workers, tmp_path: Path
) -> None:
    """ECO-TR-3: the headers are those of Sentry for Ruby; the last field that of an old one."""
    headers = {"sentry-trace": f"{TRACE}-b7ad6b7169203331-1", "baggage": f"sentry-trace_id={TRACE}"}
    for number, (name, args) in enumerate({"Divide": [1, 0], "Unknown": []}.items()):
        payload = {"class": name, "args": args, "jid": str(number), "retry": False}
        text = json.dumps({**payload, "trace_propagation_headers": headers})
        server.client().lpush("queue:default", text)
    good = {"class": "Divide", "args": [1, 2], "jid": "9", "sentry_trace": headers["sentry-trace"]}
    server.client().lpush("queue:default", json.dumps(good))
    worker = workers.start("tests.apps.reporting:app", "--redis", server.url, "-q", "default")
    wait_until(lambda: len(sent(tmp_path)) >= 5, 30, "events")
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    events = sent(tmp_path)
    errors = {event["transaction"]: event for event in events if "exception" in event}
    assert {*errors} == {"Divide", "Unknown"}
    assert errors["Divide"]["exception"]["values"][-1]["type"] == "ZeroDivisionError"
    assert errors["Divide"]["tags"]["queue"] == "default"
    assert errors["Divide"]["contexts"]["job"] == {"jid": "0", "attempt": 1}
    transactions = [event for event in events if event.get("type") == "transaction"]
    assert sorted(event["transaction"] for event in transactions) == ["Divide", "Divide", "Show"]
    assert {event["contexts"]["trace"]["trace_id"] for event in events} == {TRACE}
    assert {event["contexts"]["trace"]["op"] for event in transactions} == {"queue.process"}
    assert len(events) == 5, "the lines of the log are not events of their own"
