"""The schemas of the conformance suite: driver messages, cases and results."""

from __future__ import annotations

from typing import Any

from tests.rows import over
from tests.schemas import ABSENT, mutant, problems, schema

HELLO, GREETING, PUSH, PUSHED, _, REJECTED, *_ = schema("driver")["examples"]
INSPECT, JOBS, BULK, BULK_DONE, ACT, DONE, *_, UNSUPPORTED, BYE = schema("driver")["examples"][8:]
JOB = JOBS["ok"]["jobs"][0]
CASE = schema("case")["examples"][0]
RESULTS = schema("results")["examples"][0]


@over("message", schema("driver")["examples"])
def test_a_message_goes_one_way(message: dict[str, Any]) -> None:
    """A request is not valid as an answer, and an answer not as a request."""
    is_request = problems("driver", "request", message) == []
    is_response = problems("driver", "response", message) == []
    assert is_request != is_response == ("op" not in message)


@over("message", schema("driver")["examples"])
def test_every_message_is_closed(message: dict[str, Any]) -> None:
    """A misspelt field is a fault of the adapter, and is not ignored."""
    assert problems("driver", None, message) == []
    assert problems("driver", None, [message]) != []
    for field, value in [("id", ABSENT), ("id", "1"), ("id", None), ("jbo", {}), ("op", 7)]:
        if field in message or value is not ABSENT:
            assert problems("driver", None, mutant(message, field, value)) != []


@over(
    ("message", "field", "value"),
    [
        (HELLO, "driver", 2),
        (HELLO, "redis_url", "localhost:6379"),
        (HELLO, "id", 0),
        (HELLO, "op", "hullo"),
        (GREETING, "id", ABSENT),
        (GREETING, "ok", {"driver": 1, "version": "2.3.0", "ops": ["fly"]}),
        (GREETING, "error", {"kind": "unknown", "message": "both at once"}),
        (PUSH, "job", ABSENT),
        (PUSH, "job", "JobwireEcho"),
        (PUSH, "time", 5),
        (PUSHED, "ok", {}),
        (PUSHED, "ok", {"jid": 7}),
        (REJECTED, "error", {"kind": "failed", "message": "neither"}),
        (REJECTED, "error", {"kind": "rejected"}),
        (UNSUPPORTED, "unsupported", False),
        (INSPECT, "what", "everything"),
        (INSPECT, "name", ABSENT),
        (INSPECT, "limit", 10),
        (JOBS, "ok", {"jobs": [{"member": "{}"}]}),
        (JOBS, "ok", {"jobs": [{**JOB, "member": {"base64": "?"}}]}),
        (JOBS, "ok", {"jobs": [{**JOB, "failed_at": "yesterday"}]}),
        (JOBS, "ok", {"jobs": [{**JOB, "error_backtrace": [7]}]}),
        (JOBS, "ok", {"jobs": [{**JOB, "args": []}]}),
        (JOBS, "ok", {"queues": {"default": 5}}),
        (BULK, "args", ABSENT),
        (BULK, "job", {"class": "JobwireEcho", "args": []}),
        (BULK_DONE, "ok", {"jids": [1]}),
        (ACT, "member", ABSENT),
        (ACT, "member", 7),
        (ACT, "set", ABSENT),
        (ACT, "identity", "app-1:4711:0a1b2c3d4e5f"),
        (ACT, "jid", "b4a577edbccf1d805744efa9"),
        (ACT, "action", "cancel"),
        (ACT, "action", "burn"),
        (ACT, "action", ABSENT),
        (INSPECT, "what", ABSENT),
        (INSPECT, "what", "find"),
        (BULK, "args", {}),
        (HELLO, "redis_url", ABSENT),
        (GREETING, "ok", {"driver": 2, "version": "2.3.0", "ops": []}),
        (GREETING, "ok", {"driver": 1, "version": "", "ops": []}),
        (GREETING, "ok", {"driver": 1, "version": "2.3.0", "ops": ["push", "push"]}),
        (PUSHED, "ok", {"jid": ""}),
        (PUSHED, "ok", {"jid": "0a1b", "copies": 1}),
        (ACT, "set", "processes"),
        (ACT, "queue", "default"),
        (ACT, "action", "quiet"),
        (ACT, "action", "reschedule"),
        (DONE, "ok", None),
        (BYE, "ok", {}),
    ],
)
def test_spoilt_message_is_rejected(message: dict[str, Any], field: str, value: object) -> None:
    assert problems("driver", None, message) == []
    spoilt = mutant(message, field, value)
    if spoilt.get("ok") == {} and "op" not in spoilt:
        # An empty result is right for some operations; only the request tells which one it is.
        assert problems("driver", "pushed", spoilt["ok"]) != []
    else:
        assert problems("driver", None, spoilt) != []


def test_a_time_is_given_once() -> None:
    assert problems("driver", "push", {**PUSH, "at": 5}) == []
    assert problems("driver", "push", {**PUSH, "at": 5, "in": 5}) != []


@over(
    ("field", "value"),
    [
        *((field, ABSENT) for field in ("case", "title", "claims", "since", "steps")),
        ("case", "Sched Promote"),
        ("claims", []),
        ("claims", ["worker/fast"]),
        ("since", "1.0-draft.1"),
        ("pace", "slow"),
        ("seed", [{"zadd": "schedule", "raw": "{}"}]),
        ("seed", [{"zadd": "schedule", "score": "tomorrow", "raw": "{}"}]),
        ("seed", [{"lpush": "queue:a", "raw": "{}", "job": {}}]),
        ("steps", []),
        ("steps", [{"start": "w1"}]),
        ("steps", [{"dance": True}]),
        ("steps", [{"settle": False}]),
        ("steps", [{"settle": True, "kill": "w1"}]),
        ("steps", [{"check": "SCHED-6"}]),
        ("steps", [{"check": "SCHED-6 SCHED-7", "list": "queue:default", "len": 1}]),
        ("steps", [{"check": "SCHED-6", "list": "a", "len": {"$": "range"}}]),
        ("steps", [{"check": "SCHED-6", "list": "a", "len": {"$": "about", "is": 1}}]),
        ("steps", [{"await": "all is well"}]),
        ("steps", [{"await": {"exit": "w1"}}]),
        ("steps", [{"await": {"exit": "w1", "stat": "failed", "is": 0}}]),
        ("steps", [{"await": {"wellness": "w1", "is": 1}}]),
        ("steps", [{"fault": "w1", "match": {"cmd": "LPUSH"}, "at": "after", "do": "error"}]),
        ("steps", [{"fault": "w1", "match": {"cmd": "LPUSH"}, "at": "after", "do": "delay"}]),
        ("crash", {"process": "w1", "points": "effects", "side": [], "check": {"REL-2": "x"}}),
        ("notes", "none"),
    ],
)
def test_spoilt_case_is_rejected(field: str, value: object) -> None:
    assert problems("case", None, CASE) == []
    assert problems("case", None, mutant(CASE, field, value)) != []


@over(
    "step",
    [
        {"stop": "w1", "within": 10},
        {"signal": "TSTP", "process": "w1", "by": "redis"},
        {"kill": "w1"},
        {"push": {"class": "JobwireEcho", "args": []}, "in": 5, "bind": "jid", "expect": "ok"},
        {"push_bulk": {"class": "JobwireEcho"}, "args": [[1], [2]]},
        {"seed": [{"hset": "it-1", "fields": {"ex": "1"}, "ttl": 60}]},
        {"warp": 3600, "keys": ["schedule"]},
        {"release": "g"},
        {"await": [{"copies": "0123456789abcdef01234567", "is": 1}, {"stat": "failed", "is": 0}]},
        {"await": {"exit": "w1", "not": "running"}},
        {"inspect": "set", "name": "retry", "bind": "found"},
        {"check": "PAY-9", "list": "queue:a", "index": 0, "payload": {"jid": {"$": "any"}}},
        {"check": "SIG-4", "process": "w1", "commands": [["RPOP", {"$": "any"}]]},
    ],
)
def test_steps_of_every_kind(step: dict[str, Any]) -> None:
    assert problems("case", None, {**CASE, "steps": [step]}) == []


@over("field", schema("results")["required"])
def test_results_are_complete(field: str) -> None:
    assert problems("results", None, mutant(RESULTS, field, ABSENT)) != []


@over(
    ("field", "value"),
    [
        ("status", "skip"),
        ("status", "flaky"),
        ("status", "deviation"),
        ("status", "blocked"),
        ("status", "fail"),
        ("requirement", "push-1"),
        ("claim", "client"),
        ("keyword", "must"),
        ("trace", [41]),
        ("seconds", -1),
    ],
)
def test_spoilt_check_is_rejected(field: str, value: object) -> None:
    check = RESULTS["checks"][0]
    assert problems("results", "check", check) == []
    assert problems("results", "check", mutant(check, field, value)) != []


def test_spoilt_loss_is_rejected() -> None:
    loss = RESULTS["loss_map"][0]
    for field, value in [("outcome", "fine"), ("point", "BRPOP"), ("side", "during")]:
        assert problems("results", "loss", mutant(loss, field, value)) != []
