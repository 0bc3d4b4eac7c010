"""jobwire.protocol.periodic_entry: the hash of an entry and the payload of a tick."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobwire import ConfigError, InvalidJob
from jobwire.protocol.periodic_entry import CatchUp, PeriodicEntry, StoredEntry, catch_up
from tests.rows import over

NOW = 1_770_717_610.25
MEMBER = "cron_job:default:t"
HASH = {"name": "t", "klass": "EchoJob", "cron": "* * * * *", "args": "[1]"}


def stored(**fields: str) -> StoredEntry:
    return StoredEntry(MEMBER, "default", {**HASH, **fields})


def payload(entry: StoredEntry, **more: Any) -> dict[str, Any]:
    made = entry.payload(**{"jid": "j1", "now": NOW, "generation": 8, "job_id": "u1", **more})
    decoded: dict[str, Any] = json.loads(made.text)
    assert decoded["queue"] == made.queue
    return decoded


def test_the_message_gives_the_options() -> None:
    """X-CRON-29: klass and the field args replace those of the message, other members stay."""
    message = '{"retry":3,"queue":"low","class":"Old","args":[9],"tags":["a"],"x":1.5}'
    assert payload(stored(message=message)) == {
        **{"retry": 3, "queue": "low", "class": "EchoJob", "args": [1], "tags": ["a"], "x": 1.5},
        **{"jid": "j1", "created_at": 1770717610250, "enqueued_at": 1770717610250},
    }


def test_fields_of_a_run_are_left_out() -> None:
    """X-CRON-29: an id, a time or a failure in the message is not of this push."""
    made = payload(stored(message='{"jid":"old","at":1,"created_at":1,"retry_count":3}'))
    assert made.keys() == {*("retry", "queue", "class", "args", "jid", "created_at", "enqueued_at")}


@over(
    ("text", "args"),
    [
        (None, []),
        ("null", []),
        ("[1,2]", [1, 2]),
        ('{"a":1}', [["a", 1]]),
        ("7", [7]),
        ("a string", ["a string"]),
        ("[1", ["[1"]),
        ("", [""]),
    ],
)
def test_arguments_of_every_form(text: str | None, args: list[Any]) -> None:
    """X-CRON-30: as recorded from the gem."""
    fields = {name: value for name, value in HASH.items() if name != "args"}
    if text is not None:
        fields["args"] = text
    assert payload(StoredEntry(MEMBER, "default", fields))["args"] == args


@pytest.mark.parametrize(("text", "args"), [("1", [1, NOW]), ("true", [1, NOW]), ("0", [1])])
def test_the_date_as_an_argument(text: str, args: list[Any]) -> None:
    """X-CRON-31: in the notation of either layout."""
    assert payload(stored(date_as_argument=text))["args"] == args


def test_an_active_job_is_wrapped() -> None:
    """X-CRON-32: with the prefix of its queue."""
    made = payload(stored(active_job="1", queue_name_prefix="app", message='{"queue":"low"}'))
    assert made["class"] == "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
    assert (made["wrapped"], made["queue"]) == ("EchoJob", "app_low")
    assert made["args"] == [
        {"job_class": "EchoJob", "job_id": "u1", "queue_name": "app_low", "arguments": [1]}
    ]


@over(
    ("fields", "problem"),
    [
        ({}, ""),
        ({"message": ""}, ""),
        ({"klass": "", "class": "A"}, ""),
        ({"klass": ""}, "klass is missing"),
        ({"cron": " "}, "cron is missing"),
        ({"name": "other"}, "does not belong to the key"),
        ({"message": "[]"}, "message is not a JSON object"),
        ({"message": "{"}, "message is not a JSON object"),
    ],
)
def test_a_damaged_entry_says_so(fields: dict[str, str], problem: str) -> None:
    """X-CRON-28"""
    assert problem in stored(**fields).problem
    assert bool(stored(**fields).problem) == bool(problem)


def test_a_payload_that_no_worker_can_read_is_not_pushed() -> None:
    """X-CRON-28: the error names the field."""
    with pytest.raises(InvalidJob, match="retry"):
        payload(stored(message='{"retry":"x"}'))


@over(
    ("text", "rule"),
    [
        (None, None),
        ("", None),
        ("none", None),
        ("sometimes", None),
        ("all:0", None),
        ("all:1001", None),
        ("last", CatchUp(1, since_last=False)),
        ("all", CatchUp(1000, since_last=True)),
        ("all:7", CatchUp(7, since_last=True)),
    ],
)
def test_rules_for_late_ticks(text: str | None, rule: CatchUp | None) -> None:
    """X-CRON-24: a text that is not known is none."""
    assert catch_up(text) == rule


@over(
    ("wrong", "text"),
    [
        ({"name": ""}, "name ''"),
        ({"job": " A"}, "job ' A'"),
        ({"cron": ""}, "cron ''"),
        ({"args": "abc"}, "is not a list"),
        ({"args": [object()]}, "args"),
        ({"catch_up": "all:5000"}, "from 1 to 1000"),
        ({"overlap": "queue"}, "not one of 'allow', 'skip'"),
        ({"options": {"qeue": "a"}}, "did you mean 'queue'"),
    ],
)
def test_definitions_are_checked(wrong: dict[str, Any], text: str) -> None:
    """X-CRON-43: the error names the entry, the value and the rule."""
    with pytest.raises(ConfigError, match=text):
        PeriodicEntry(**{"name": "t", "cron": "* * * * *", "job": "A", **wrong})


def test_retry_is_in_the_message_and_in_its_own_field() -> None:
    """X-CRON-33: sidekiq-cron 2 takes it from the message."""
    entry = PeriodicEntry(name="t", cron="* * * * *", job="A", options={"retry": False})
    fields = entry.fields(layout=2)
    assert fields["retry"] == "false"
    assert json.loads(fields["message"]) == {
        **{"retry": False, "queue": "default", "class": "A", "args": []}
    }
