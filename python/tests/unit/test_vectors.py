"""jobwire's rules and outcomes compared with fixtures/, and the vectors with recordings of Sidekiq.

[EXEC-1] to [EXEC-7]
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from runpy import run_path
from typing import Any

import msgspec
import pytest

from jobwire.application import active_values
from jobwire.connection import resources
from jobwire.errors import ConfigError, InvalidJob, MalformedPayload
from jobwire.periodic.cron import CronLine, parse
from jobwire.protocol import active_job, times
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import build, finalize
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.payload import decode, edit, encode
from jobwire.protocol.periodic_entry import StoredEntry, stored_time, tick_member
from jobwire.protocol.promotion import first_wait, next_wait, promoted
from jobwire.protocol.pushing import detect_generation
from jobwire.protocol.retry import Discard, Failure, after_failure, encode_backtrace, retry_delay
from jobwire.protocol.times import Generation
from jobwire.protocol.unique import digest
from tests.rows import over

FIXTURES = resources.path("fixtures")
OURS = "8.0-"
FORMULAS = {"6.4.1": "6.2.2-7.3", "7.3.2": "6.2.2-7.3", "8.1.7": OURS}
ALMOST_ONE = math.nextafter(1.0, 0.0)


def load(file: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(Path(FIXTURES / file).read_text("utf-8"))
    return loaded


neutral = run_path(str(FIXTURES.parent / "conformance/drivers/python/neutral.py"))["neutral"]


def vectors(kind: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return over("vector", load(f"vectors/{kind}.json"), ids=lambda vector: vector["name"])


@vectors("unique-keys")
def test_the_key_of_a_unique_job(vector: dict[str, Any]) -> None:
    """[X-UNIQ-1]"""
    value = msgspec.json.decode(vector["json"])
    assert digest(vector["class"], vector["queue"], value) == vector["digest"]


# -- retry delays


@vectors("retry-delays")
def test_retry_delay_spans_the_interval(vector: dict[str, Any]) -> None:
    """[RETRY-4]"""
    count, delay = vector["retry_count"], vector["delays"][OURS]
    assert retry_delay(count, jitter=0.0) == delay["min"]
    assert retry_delay(count, jitter=ALMOST_ONE) == delay["max"]
    faces = 10 * (count + 1)
    throws = {retry_delay(count, jitter=(face + 0.5) / faces) for face in range(faces)}
    assert throws == set(range(delay["min"], delay["max"] + 1, delay["step"]))


def test_retry_delays_are_those_of_all_retries() -> None:
    """[RETRY-4] 25 retries take three weeks; each formula adds its own jitter."""
    table = load("vectors/retry-delays.json")
    assert [vector["retry_count"] for vector in table] == list(range(25))
    for formula, mean_extra in (("4.0-6.2.1", 4712.5), ("6.2.2-7.3", 1462.5), (OURS, 1612.5)):
        delays = [vector["delays"][formula] for vector in table]
        assert sum(delay["min"] for delay in delays) == 1_763_395
        assert sum((delay["max"] - delay["min"]) / 2 for delay in delays) == mean_extra
        assert all((d["max"] - d["min"]) % d["step"] == 0 for d in delays)


@pytest.mark.parametrize("version", FORMULAS)
def test_recorded_retries_are_inside_their_intervals(version: str) -> None:
    """[RETRY-4] The scores are Sidekiq's, of jobs without a custom delay."""
    table = [vector["delays"][FORMULAS[version]] for vector in load("vectors/retry-delays.json")]
    checked = 0
    for entry in load(f"sidekiq/{version}/payloads.json"):
        # api-* moved some; hooks chose the delay of others; retry_on is Active Job's own.
        if entry["place"] != "retry" or entry["scenario"].startswith(
            ("api-", "retry-in-", "wire-")
        ):
            continue
        failed_at = entry["expect"]["retried_at"] or entry["expect"]["failed_at"]
        if failed_at is None:
            continue  # put there by the harness
        fields = json.loads(entry["payload"])
        waited = float(entry["score"]) - failed_at / 1000
        delay = table[fields["retry_count"]]
        # The score is taken a moment after the time of the failure.
        assert delay["min"] - 0.001 <= waited < delay["max"] + 0.5, entry["name"]
        excess = (waited - delay["min"]) % delay["step"]
        assert min(excess, delay["step"] - excess) < 0.5, entry["name"]
        checked += 1
    assert checked >= 30


# -- queue selection


@vectors("queue-selection")
def test_mode_and_odds_of_queues(vector: dict[str, Any]) -> None:
    """[FETCH-3] [FETCH-4]"""
    order = QueueOrder(dict(vector["weights"]))
    assert order.mode == vector["mode"]
    assert [queue for queue, _ in vector["weights"]] == list(vector["first"])
    tickets = vector["expanded"]
    ahead: list[str] = []
    for top in range(len(tickets)):  # a uniform shuffle puts each ticket on top equally often

        def lift(names: list[str], top: int = top) -> None:
            assert names == tickets
            names.insert(0, names.pop(top))

        ahead.append(order.pick(lift)[0])
    assert {queue: Fraction(*share) for queue, share in vector["first"].items()} == {
        queue: Fraction(ahead.count(queue), len(ahead)) for queue in vector["first"]
    }


@vectors("queue-selection")
def test_order_of_a_shuffle(vector: dict[str, Any]) -> None:
    """[FETCH-2] [FETCH-3]"""
    order = QueueOrder(dict(vector["weights"]))
    for pick in vector["picks"]:
        assert sorted(pick["shuffled"]) == sorted(vector["expanded"])

        def deal(names: list[str], shuffled: list[str] = pick["shuffled"]) -> None:
            names[:] = shuffled

        assert order.pick(deal) == pick["order"]
    if vector["mode"] == "strict":

        def never(names: list[str]) -> None:
            raise AssertionError("strict order needs no random numbers")

        assert order.pick(never) == [queue for queue, _ in vector["weights"]]
    else:
        assert vector["picks"]


def test_mode_is_what_sidekiq_says_of_its_capsules() -> None:
    """[FETCH-4]"""
    modes = set()
    for scenario in load("sidekiq/8.1.7/processes.json"):
        for process in scenario["expect"]:
            for capsule in process["capsules"].values():
                assert QueueOrder(capsule["weights"]).mode == capsule["mode"]
                modes.add(capsule["mode"])
    assert modes == {"strict", "weighted"}  # no process had all weights 1


# -- backtraces


def read_backtrace(stored: Any) -> list[str] | None:
    """Read a stored backtrace by the rules of SPEC.md, with the standard library only."""
    lines = stored
    if isinstance(stored, str):
        try:
            lines = json.loads(zlib.decompress(base64.b64decode(stored)))
        except (ValueError, zlib.error):
            return None
    if isinstance(lines, list) and all(isinstance(line, str) for line in lines):
        return lines
    return None


@vectors("backtraces")
def test_backtrace_can_be_read(vector: dict[str, Any]) -> None:
    """[RETRY-8] A plain reader gets the lines of the vectors."""
    assert read_backtrace(vector["stored"]) == vector["lines"]
    if vector["form"].startswith("base64"):
        assert ("\n" in vector["stored"]) == (vector["form"] == "base64-lines")


@vectors("backtraces")
def test_written_backtrace_reads_back(vector: dict[str, Any]) -> None:
    """[RETRY-8]"""
    if vector["lines"] is None:
        return
    stored = encode_backtrace(vector["lines"])
    assert "\n" not in stored
    assert read_backtrace(stored) == vector["lines"]
    text = zlib.decompress(base64.b64decode(stored, validate=True))
    if "source" in vector:  # the very JSON text, not only its value
        assert text == zlib.decompress(base64.b64decode(vector["stored"]))


@vectors("backtraces")
def test_stored_backtrace_survives_whatever_it_is(vector: dict[str, Any]) -> None:
    """[PAY-7] A carried backtrace is not decoded."""
    text = encode({"class": "A", "args": [], "queue": "q", "error_backtrace": vector["stored"]})
    _, moved = promoted(text, now=1_795_192_067.25, generation=7)
    assert json.loads(moved)["error_backtrace"] == vector["stored"]


def test_backtraces_come_in_every_form() -> None:
    table = load("vectors/backtraces.json")
    forms = {"array", "marshal", "base64-lines", "base64", "garbage"}
    assert {vector["form"] for vector in table} == forms
    assert {vector["source"]["producer"][8:] for vector in table if "source" in vector} == set(
        FORMULAS
    )


# -- times


@vectors("times")
def test_time_is_read(vector: dict[str, Any]) -> None:
    """[GEN-3]"""
    text = b'{"class":"A","args":[],"created_at":%s}' % vector["json"].encode()
    try:
        value = decode(text, "default").get("created_at")
    except MalformedPayload:
        assert vector["name"] == "beyond-every-double"  # some JSON libraries cannot read it
        value = json.loads(vector["json"])
    seconds = times.read(value)
    if vector["ms"] is None:
        assert seconds is None
    else:
        assert seconds is not None
        assert round(seconds * 1000) == vector["ms"]


# -- spellings


def written(value: object) -> str:
    """Return the payload that a client writes for a job with this argument."""
    item = build("A", [value], {}, jid="0" * 24, now=1.5, generation=8)
    return finalize(item, now=1.5, generation=8).text.decode()


@vectors("spellings")
def test_value_is_written_in_a_lawful_spelling(vector: dict[str, Any]) -> None:
    """[PAY-2] [PAY-4] [PAY-6] [PAY-20] [PAY-21] [PAY-22] [PAY-25] [PAY-26]"""
    value = json.loads(vector["json"])
    if not vector["written"]:
        with pytest.raises(InvalidJob, match=r"args\[0\]"):
            written(value)
        return
    text = written(value)
    start, end = text.index('"args":[') + 8, text.index('],"class"')
    assert text[start:end] in vector["written"]


@vectors("spellings")
def test_worker_reads_the_value_or_refuses_the_payload(vector: dict[str, Any]) -> None:
    """[PAY-23] [PAY-24] a value that a writer refuses is not changed."""
    text = b'{"class":"A","args":[%s]}' % vector["json"].encode()
    try:
        args = decode(text, "default").args
    except MalformedPayload:
        assert not vector["written"]
    else:
        assert args == [json.loads(vector["json"])]


# -- poll intervals


@vectors("poll-intervals")
def test_wait_between_looks(vector: dict[str, Any]) -> None:
    """[SCHED-8] [SCHED-22] [SCHED-23]"""
    configured, u = vector["configured"], vector["u"]
    if vector["look"] == "next":
        wait = next_wait(configured, processes=vector["processes"], jitter=u)
        assert wait == vector["wait"]["8.0.10-"]
        return
    wait = first_wait(configured, jitter=u)
    if configured is None:
        assert wait == vector["wait"]["6.5.7-"]
    else:  # at most: with short intervals, the first wait is also short
        assert 0 <= wait <= vector["wait"]["6.5.7-"] <= 5


# -- arguments of Active Job


@vectors("active-job-arguments")
def test_arguments_of_active_job(vector: dict[str, Any]) -> None:
    """[X-AJ-2] [X-AJ-10] They are read, and written so that they are read as the same."""
    wire = json.loads(vector["wire"])
    values = active_values.load(wire)
    assert neutral(values) == vector["value"]
    written = active_values.dump(values)
    assert neutral(active_values.load(written)) == vector["value"]
    # Python has one kind of time, with microseconds.
    assert written == wire or any(kind in vector["ruby"] for kind in ("Time", ".at"))


def test_a_serializer_of_the_application_is_carried() -> None:
    """[X-AJ-4]"""
    wire = {"_aj_serialized": "Shop::MoneySerializer", "cents": 700}
    value = active_values.load([wire])[0]
    assert value.fields == wire
    assert active_values.dump(value) == wire


@pytest.mark.parametrize(
    "wire",
    [
        {"_aj_serialized": 7},
        {"_aj_globalid": "Order/7"},
        {"_aj_symbol_keys": "a"},
        {"_aj_serialized": "ActiveJob::Serializers::DateSerializer", "value": "tomorrow"},
        {
            "_aj_serialized": "ActiveJob::Serializers::TimeSerializer",
            "value": "2026-01-02T03:04:05",
        },
        {"_aj_serialized": "ActiveJob::Serializers::BigDecimalSerializer", "value": "much"},
        {"_aj_serialized": "ActiveJob::Serializers::DurationSerializer", "value": 1, "parts": [1]},
        {"_aj_serialized": "ActiveJob::Serializers::DurationSerializer", "value": "1"},
    ],
)
def test_a_mark_with_a_wrong_value_is_refused(wire: dict[str, Any]) -> None:
    """[X-AJ-5]"""
    with pytest.raises(ValueError, match=r"is not a|has no offset|isoformat"):
        active_values.load([wire])


def test_what_wraps_an_active_job() -> None:
    """[X-AJ-1] [X-AJ-9] Only its wrapper, around one object with a class."""
    described = active_job.wrap("Shop::Pay", [7], queue="high", job_id="1-2", now=0.5)
    assert described["enqueued_at"] == "1970-01-01T00:00:00.500000000Z"
    fields: dict[str, Any] = {"class": active_job.WRAPPERS[0], "args": [described]}
    assert active_job.class_of(fields) == "Shop::Pay"
    wrong: list[Any] = [7, [], ["x"], [{}]]
    assert [active_job.class_of(fields | {"args": args}) for args in wrong] == [""] * 4
    assert active_job.class_of(fields | {"class": "Shop::Pay"}) == ""


def periodic_vectors(kind: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((FIXTURES / f"vectors/{kind}.json").read_text())
    return loaded


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def following(line: CronLine, after: int) -> Iterator[int]:
    tick: int | None = after
    while tick is not None and (tick := line.after(tick)) is not None:
        yield tick


@over("vector", periodic_vectors("cron-ticks"), ids=lambda vector: vector["name"])
def test_a_line_has_these_ticks(vector: dict[str, Any]) -> None:
    """[X-CRON-10] [X-CRON-11] [X-CRON-12] [X-CRON-14] Forwards and backwards."""
    if vector["ticks"] is None:
        with pytest.raises(ConfigError):
            parse(vector["line"])
        return
    line = parse(vector["line"], tz=vector["zone"] or "")
    ticks = [seconds(tick) for tick in vector["ticks"]]
    after = seconds(vector["after"])
    assert [tick for tick, _ in zip(following(line, after), ticks, strict=False)] == ticks
    assert [line.before(tick + 1) for tick in ticks] == ticks
    assert [line.before(tick) for tick in ticks[1:]] == ticks[:-1]


def test_the_clock_changes_are_many_and_of_all_kinds() -> None:
    """At least 60 rows show what a change of the clock does."""
    changes = [
        vector for vector in periodic_vectors("cron-ticks") if "X-CRON-10" in vector["covers"]
    ]
    assert len(changes) >= 60
    zones = {vector["line"].split()[-1] for vector in changes}
    assert zones >= {
        *("Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia", "Africa/Casablanca"),
        *("Europe/Berlin", "America/New_York"),
    }


@over("vector", periodic_vectors("cron-members"), ids=lambda vector: vector["name"])
def test_a_tick_has_these_texts(vector: dict[str, Any]) -> None:
    """[X-CRON-4] [X-CRON-7]"""
    assert tick_member(vector["tick"]) == vector["member"]
    assert stored_time(vector["tick"]) == vector["last_enqueue_time"]


@over("vector", periodic_vectors("cron-payloads"), ids=lambda vector: vector["name"])
@over("generation", [7, 8])
def test_an_entry_has_this_payload(vector: dict[str, Any], generation: Generation) -> None:
    """[X-CRON-29] [X-CRON-30] [X-CRON-31]"""
    entry = StoredEntry("cron_job:default:report", "default", vector["entry"])
    ready = entry.payload(jid=vector["jid"], now=vector["now"], generation=generation)
    payload, expected = json.loads(ready.text), vector["payload"][str(generation)]
    assert payload == expected
    assert [type(arg) for arg in payload["args"]] == [type(arg) for arg in expected["args"]]


FILES = [
    line["file"]
    for line in json.loads((FIXTURES / "index.json").read_text("utf-8"))
    if line["kind"] in ("payloads", "invalid")
]
TIMES = ("created_at", "enqueued_at", "failed_at", "retried_at")
NOW = 1_795_192_067.25


def run_entries(file: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(Path(FIXTURES / file).read_text("utf-8"))
    return loaded


def payload(entry: dict[str, Any]) -> bytes:
    if "payload" in entry:
        return str(entry["payload"]).encode()
    return base64.b64decode(entry["payload_base64"])


def observed(text: bytes) -> dict[str, Any]:
    """Return the outcome in a worker that knows every class, in the form of `expect`."""
    try:
        job = decode(text, "default")
    except MalformedPayload as error:
        return {"outcome": "bury", "rule": error.rule}
    if not job.class_name:
        return {"outcome": "fail", "reason": "no-class"}
    try:
        args = job.args
    except TypeError:
        return {"outcome": "fail", "reason": "args-not-an-array"}
    seen: dict[str, Any] = {
        "outcome": "run",
        "class": job.class_name,
        "args": exact(args),
        "jid": job.jid,
    }
    for name in TIMES:
        seconds = times.read(job.get(name))
        seen[name] = None if seconds is None else round(seconds * 1000)
    return seen


def exact(value: Any) -> Any:
    """Return a value in which 1, 1.0 and -0.0 compare as different."""
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return [(name, exact(item)) for name, item in sorted(value.items())]
    return (type(value).__name__, repr(value))


def wanted(expect: dict[str, Any]) -> dict[str, Any]:
    if expect["outcome"] == "bury":
        rule = {"not-an-object": "EXEC-4", "too-deep": "PAY-3"}.get(expect["reason"], "EXEC-3")
        return {"outcome": "bury", "rule": rule}
    if expect["outcome"] == "fail":
        return {"outcome": "fail", "reason": expect["reason"]}
    known = {name: expect[name] for name in ("class", "jid", *TIMES)}
    return {"outcome": "run", "args": exact(json.loads(expect["args_json"]))} | known


def differences(entry: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the differences from the expectation: name to (seen, expected)."""
    seen = observed(payload(entry))
    if entry["expect"]["outcome"] == "run-or-bury" and seen["outcome"] == "bury":
        return {}
    expected = wanted(entry["expect"])
    wrong = {}
    for name in sorted(seen.keys() | expected.keys()):
        ours, theirs = seen.get(name), expected.get(name)
        if name in TIMES and ours is not None and theirs is not None:
            if abs(ours - theirs) > 1:  # cut or rounded
                wrong[name] = (ours, theirs)
        elif ours != theirs:
            wrong[name] = (ours, theirs)
    return wrong


@pytest.mark.parametrize("file", FILES)
def test_every_payload_is_run_failed_or_buried_as_expected(file: str) -> None:
    """EXEC-1, EXEC-3, EXEC-4, EXEC-7, EXEC-9, GEN-3, PAY-1, PAY-3, PAY-5, PAY-6, SEC-1."""
    listed = run_entries(file)
    assert listed
    assert {e["name"]: wrong for e in listed if (wrong := differences(e))} == {}


@pytest.mark.parametrize("file", FILES)
def test_every_payload_survives_an_edit(file: str) -> None:
    """PAY-7: fields that a transition does not own keep their exact values."""
    for entry in run_entries(file):
        text = payload(entry)
        if observed(text)["outcome"] == "bury":
            continue
        before = json.loads(text)
        after = json.loads(edit(text, {"retried_at": 5}))
        assert exact(after) == exact(before | {"retried_at": 5}), entry["name"]


@pytest.mark.parametrize("file", FILES)
def test_every_payload_can_fail(file: str) -> None:
    """RETRY-1 and RETRY-9: every payload has an outcome after a failure, and stays a payload."""
    for entry in run_entries(file):
        text = payload(entry)
        if observed(text)["outcome"] == "bury":
            continue
        for generation in (7, 8):
            outcome = after_failure(
                decode(text, "default"),
                Failure("E", "m"),
                now=NOW,
                jitter=0.5,
                generation=generation,
                default_retry=True,
            )
            if not isinstance(outcome, Discard):
                assert decode(outcome.text, "default").get("error_class") == "E", entry["name"]
                assert math.isfinite(getattr(outcome, "at", 0.0))


@pytest.mark.parametrize(("version", "generation"), [("6.4.1", 7), ("7.3.2", 7), ("8.1.7", 8)])
def test_real_processes_tell_their_generation(version: str, generation: int) -> None:
    """GEN-5: detected from the records of real processes of three versions."""
    asked = 0
    for entry in run_entries(f"sidekiq/{version}/processes.json"):
        op = detect_generation(Keys())
        next(op)
        infos = [identity["fields"]["info"].encode() for identity in entry["identities"].values()]
        if not infos:
            continue
        op.send([name.encode() for name in entry["identities"]])
        with pytest.raises(StopIteration) as done:
            op.send(infos)
        assert done.value.value == generation, entry["name"]
        asked += 1
    assert asked
