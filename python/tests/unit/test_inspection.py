"""Properties of entries, filters, and printed tables."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from jobwire import inspect
from jobwire.cli.pretty import console, draw
from jobwire.cli.table import Column, Table
from jobwire.connection import resources
from jobwire.inspect import Filter
from jobwire.inspect.display import display_args, display_class
from jobwire.inspect.entry import Entry, backtrace_lines, entry
from jobwire.inspect.formats import ago, clean, duration, to_json
from jobwire.inspect.reading import decode_json, number, whole
from tests.rows import over
from tests.unit.test_layers import IMPURE, imports

NOW = 1_795_192_067.25
OLD, NEW = (
    "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper",
    "Sidekiq::ActiveJob::Wrapper",
)


def made(place: str = "retry", score: float | None = None, **fields: Any) -> Entry:
    return entry(json.dumps({"class": "A", "args": [], **fields}).encode(), place, score)


VECTORS = json.loads(
    (resources.path("fixtures") / "vectors" / "backtraces.json").read_text("utf-8")
)


@over("vector", VECTORS, ids=lambda vector: vector["name"])
def test_backtraces(vector: dict[str, Any]) -> None:
    """PAY-15, PAY-18, PAY-32: every known form is read; nothing is loaded, and nothing fails."""
    assert backtrace_lines(vector["stored"]) == vector["lines"]


@pytest.mark.parametrize("wrapper", [OLD, NEW])
@pytest.mark.parametrize(
    ("wrapped", "args", "shown", "arguments"),
    [
        ("W", [{"arguments": [1, {"_aj_globalid": "g"}]}], "W", [1, "g"]),
        ("W", [{"arguments": [{"a": [{"_aj_x": 1}], "_aj_symbol_keys": []}]}], "W", [{"a": [{}]}]),
        (None, ["W"], "W", []),
        (None, [{"job_class": "W", "arguments": [1]}], "W", [1]),
        ("ActionMailer::DeliveryJob", [{"arguments": ["M", "m", "now", 1]}], "M#m", [1]),
        (
            "ActionMailer::MailDeliveryJob",
            [{"arguments": ["M", "m", "now", {"params": {"p": 1}, "args": [2]}]}],
            "M#m",
            [{"p": 1}, [2]],
        ),
        ("ActionMailer::MailDeliveryJob", [{"arguments": ["M"]}], None, []),
        (None, None, "", []),
    ],
)
def test_what_active_job_wraps(
    wrapper: str, wrapped: str | None, args: Any, shown: str | None, arguments: list[Any]
) -> None:
    """PAY-16, PAY-19: both wrappers; a mail shows its mailer and method."""
    fields = {"class": wrapper, "args": args, **({"wrapped": wrapped} if wrapped else {})}
    assert display_class(fields) == (wrapped if shown is None else shown or wrapper)
    assert display_args(fields) == arguments


def test_other_classes_are_shown_as_they_are() -> None:
    """PAY-16: only a wrapper's `wrapped` counts; encrypted arguments stay hidden."""
    assert display_class({"class": "A", "wrapped": "B"}) == "A"
    assert display_class({"class": "A", "display_class": "B"}) == "B"
    assert display_args({"class": "A", "args": [1, "s"], "encrypt": True}) == [
        1,
        "[encrypted data]",
    ]
    assert display_args({"class": "A", "args": {"odd": 1}}) == [{"odd": 1}]


@over(
    ("only", "meant"),
    [
        (Filter(), True),
        (Filter(class_name="Mail*"), True),
        (Filter(class_name="mail*"), False),
        (Filter(queue="l?w"), True),
        (Filter(queue="lo"), False),
        (Filter(jid="j1"), True),
        (Filter(jid="j"), False),
        (Filter(error="TIMEOUT"), True),
        (Filter(error="server"), True),
        (Filter(error="net::timeout: mail"), True),
        (Filter(error="other"), False),
        (Filter(tag="x"), True),
        (Filter(tag="y"), False),
        (Filter(text='"x"'), True),
        (Filter(older_than=100.0), True),
        (Filter(older_than=101.0), False),
        (Filter(class_name="Mail*", tag="y"), False),
    ],
)
def test_filters(only: Filter, meant: bool) -> None:
    """INSP-4: an entry has to meet all conditions."""
    fields: dict[str, Any] = {"class": "MailJob", "queue": "low", "jid": "j1", "tags": ["x"]}
    one = made(
        **fields,
        error_class="Net::Timeout",
        error_message="mail server",
        failed_at=NOW - 100,
        created_at=NOW - 999,
    )
    assert only.matches(one, now=NOW) is meant
    assert bool(only) is (only != Filter())


@over(
    ("payload", "only"),
    [
        (rb'{"class":"Sh\u006fp"}', Filter(class_name="Shop")),
        (rb'{"class":"A","tags":["a\/b"]}', Filter(tag="a/b")),
        (b'{"class":12.50}', Filter(class_name="12.5")),
        (b'{"class":"Shop::Job"}', Filter(class_name="*[Jj]ob")),
        (
            b'{"class":"Sidekiq::ActiveJob::Wrapper","wrapped":"ActionMailer::DeliveryJob",'
            b'"args":[{"arguments":["Mails","welcome","x"]}]}',
            Filter(class_name="Mails#welcome"),
        ),
        ('{"class":"A","error_message":"die Straße"}'.encode(), Filter(error="STRASSE")),
        (b'{"class":"A","error_class":"E","error_message":"at"}', Filter(error="e: at")),
        (rb'{"class":"A","error_message":"273 \u212a"}', Filter(error="273 k")),
    ],
)
def test_filters_find_what_is_spelled_otherwise(payload: bytes, only: Filter) -> None:
    """INSP-10: bytes rule an entry out only where they cannot mean the same."""
    assert only.matches(entry(payload, "retry"), now=NOW)


def test_since_when_an_entry_is_there() -> None:
    assert made("dead", NOW - 5, failed_at=NOW - 50).since == NOW - 5
    assert made("retry", NOW + 5, failed_at=NOW - 50, created_at=1.0).since == NOW - 50
    assert made("schedule", NOW + 5, created_at=NOW - 7).since == NOW - 7
    assert made("queue:a", None, created_at=1.0, enqueued_at=NOW - 3).since == NOW - 3
    assert made("queue:a").since is None


def test_odd_fields_are_left_out() -> None:
    """INSP-3: invalid tags, JSON and numbers are skipped."""
    assert made(tags=[1, "x", None]).tags == ["x"]
    assert made(retry_count="3").retry_count is None
    assert decode_json(b"[" * 100_000) is None
    assert (whole(b"9" * 5_000), whole(b"x", 7), number(b"1e999")) == (0, 7, None)


def test_broken_text_is_shown_whole() -> None:
    """INSP-3: the reason is also shown."""
    broken = entry(b"{\xff", "queue:q")
    assert (broken.text, broken.display_args, broken.queue) == ("{\ufffd", ["{\ufffd"], "q")
    assert "malformed" in str(broken.problem)
    assert broken.fault is not None
    assert broken.fault.rule == "EXEC-3"


@over(
    ("seconds", "words"),
    [
        (0, "0s"),
        (2.345, "2.3s"),
        (45.9, "45s"),
        (725, "12m 05s"),
        (12_000, "3h 20m"),
        (446_400, "5d 4h"),
        (-90, "-1m 30s"),
        (float("inf"), "∞"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_moments() -> None:
    assert (ago(None, NOW), ago(NOW - 60, NOW), ago(NOW + 60, NOW)) == (
        "-",
        "1m 00s ago",
        "in 1m 00s",
    )


def test_what_steers_a_terminal_is_spelled_out() -> None:
    """SEC-5: arguments and messages can contain control characters."""
    assert clean("a\x1b[31m\nb\udcff") == "a\\x1b[31m\\nb\ufffd"
    assert clean("grün 😀") == "grün 😀"
    assert clean("\x7f\x9b\u2028\u202e\u200b") == r"\x7f\x9b\u2028\u202e\u200b"


def test_json_has_only_what_json_has() -> None:
    assert to_json({"a": float("inf"), "b": b"x", "c": "\udcff", 1.5: (1,)}) == (
        '{"a": "inf", "b": "x", "c": "\ufffd", "1.5": [1]}'
    )


def test_json_holds_nothing_that_steers() -> None:
    """SEC-5: and has the same value."""
    value = {"\u202e": "\x1b\x7f\x9b\u2028\u200b\U000e0041 grün 😀"}
    line = to_json(value)
    assert line.isprintable()
    assert "grün 😀" in line
    assert json.loads(line) == value


@over("width", [20, 40, 60, 80, 200])
def test_a_table_fits(width: int) -> None:
    """Wide columns share the remaining width, and optional columns are dropped."""
    columns = [
        Column("key", spare=True),
        Column("text", grow=True),
        Column("more", grow=True, spare=True),
        Column("jid"),
    ]
    rows = [("k" * 8, "t" * 100, "m" * 30, "j" * 10), ("k", "漢" * 40, "", "j")]
    table = Table("title", columns, rows, lambda row: row)
    out = console()
    out.width = width
    with out.capture() as capture:
        out.print(draw(table, None, width))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    assert any("j" * min(10, width // 4) in line for line in lines)
    assert any("kkkkkkkk" in line for line in lines) is (width >= 40)


def test_only_the_inspectors_themselves_are_impure() -> None:
    """The operations are pure: no clock, no random numbers, no socket."""
    package = Path(inspect.__file__).parent
    for path in package.glob("*.py"):
        shells = ("sync", "aio", "periodic_sync", "periodic_aio", "shards", "__init__")
        if path.stem not in shells:
            tops = {module.partition(".")[0] for module in imports(path.read_text("utf-8"))}
            assert tops & IMPURE == set(), path.name


def test_a_backtrace_that_unpacks_to_more_than_the_limit_is_none() -> None:
    """SEC-4: a few kilobytes can hold gigabytes; a backtrace of usual size is shown."""
    for size, shown in ((1_000, True), (10_000_000, False)):
        packed = base64.b64encode(zlib.compress(json.dumps(["a" * size]).encode())).decode()
        assert len(packed) < 20_000
        assert (backtrace_lines(packed) is not None) == shown
