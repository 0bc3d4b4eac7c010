"""jobwire.console.ops.explain: every reason, and the facts on either side of its bound."""

from __future__ import annotations

import json
from typing import Any

from jobwire.console.ops.explain import Explanation, explain
from jobwire.console.ops.locate import JobFacts, JobLocation, QueueFacts
from jobwire.inspect.entry import entry
from jobwire.inspect.processes import CapsuleInfo, ProcessInfo
from jobwire.inspect.progress import IterationState
from tests.rows import over

NOW = 1_795_192_067.25


def job(place: str = "queue:q", score: float | None = None, **fields: Any) -> Any:
    made = {"class": "A", "args": [], "jid": "j", "queue": "q"} | fields
    return entry(json.dumps(made).encode(), place, score)


def process(identity: str = "p", **values: Any) -> ProcessInfo:
    made: dict[str, Any] = {
        "identity": identity,
        "hostname": "h",
        "pid": 1,
        "started_at": NOW,
        "beat": NOW,
        "tag": "",
        "labels": [],
        "version": "jobwire 1.0",
        "queues": ["q"],
        "capsules": {},
        "concurrency": 5,
        "busy": 0,
        "quiet": False,
        "embedded": False,
        "rss": 0,
        "rtt_us": 0,
        "info": {},
    }
    made |= values
    if "weights" in made:
        weights = made.pop("weights")
        made["capsules"] = {"default": CapsuleInfo("default", 5, "", weights)}
        made["queues"] = list(weights)
    return ProcessInfo(**made)


def explained(
    *places: JobLocation,
    processes: tuple[ProcessInfo, ...] = (process(),),
    leases: dict[str, float] | None = None,
    **facts: Any,
) -> Explanation:
    queues = {"q": QueueFacts(3, paused=False, registered=True)} | facts.pop("queues", {})
    given = {one.identity: 59.0 for one in processes} if leases is None else leases
    return explain(
        JobFacts(
            jid="j",
            now=NOW,
            places=places,
            queues=queues,
            processes=processes,
            leases=given,
            **facts,
        )
    )


def codes(*places: JobLocation, **facts: Any) -> list[str]:
    return [reason.code for reason in explained(*places, **facts).reasons]


def queued(ahead: int = 0, **fields: Any) -> JobLocation:
    return JobLocation("queue:q", job(**fields), ahead=ahead, queue="q")


def in_set(place: str, score: float, **fields: Any) -> JobLocation:
    return JobLocation(place, job(place, score, **fields), queue=fields.get("queue", "q"))


def facts_of(size: int, *, paused: bool = False, registered: bool = True) -> QueueFacts:
    return QueueFacts(size, paused, registered)


OTHERS = {"high": facts_of(9), "idle": facts_of(0), "stopped": facts_of(9, paused=True)}


@over(
    ("facts", "expected"),
    [
        ({}, ["next"]),
        ({"processes": ()}, ["no-process"]),
        ({"processes": (process(queues=["x"]),)}, ["no-listener"]),
        ({"processes": (process(quiet=True),)}, ["listeners-quiet"]),
        ({"processes": (process(quiet=True), process("r"))}, ["next"]),
        ({"leases": {}}, ["listeners-silent"]),
        ({"leases": {"p": 35.0}}, ["listeners-silent"]),
        ({"leases": {"p": 35.1}}, ["next"]),
        ({"processes": (process(busy=5),)}, ["threads-busy", "next"]),
        ({"processes": (process(busy=4),)}, ["next"]),
        ({"processes": (process(busy=5), process("r"))}, ["next"]),
        ({"queues": {"q": facts_of(1, paused=True)}}, ["queue-paused"]),
        (
            {
                "queues": {"q": facts_of(1, paused=True)},
                "processes": (process(version="8.1.7"), process("r")),
            },
            ["next"],
        ),
        (
            {"queues": {"q": facts_of(1, paused=True)}, "processes": ()},
            ["queue-paused", "no-process"],
        ),
        ({"queues": {"q": facts_of(1, registered=False)}}, ["queue-not-registered", "next"]),
    ],
)
def test_a_job_in_a_queue(facts: dict[str, Any], expected: list[str]) -> None:
    assert codes(queued(), **facts) == expected


def test_jobs_ahead_are_counted() -> None:
    assert codes(queued(1)) == codes(queued(7)) == ["jobs-ahead"]
    (one,) = explained(queued(1)).reasons
    (many,) = explained(queued(2000)).reasons
    assert one.sentence == "1 job of queue q runs before it."
    assert many.sentence == "2,000 jobs of queue q run before it."


@over(
    ("weights", "code"),
    [
        ([{"high": 0, "q": 0}], "starved-by-order"),
        ([{"q": 0, "high": 0}], None),
        ([{"idle": 0, "stopped": 0, "q": 0}], None),
        ([{"high": 0, "q": 0}, {"high": 0, "q": 0}], "starved-by-order"),
        ([{"high": 0, "q": 0}, {"q": 0}], None),
        ([{"high": 9, "q": 1}], "starved-by-weights"),
        ([{"high": 4, "q": 1}], None),
        ([{"high": 5, "q": 1}], "starved-by-weights"),
        ([{"idle": 9, "stopped": 9, "q": 1}], None),
        ([{"high": 9, "q": 1}, {"high": 1, "q": 1}], None),
    ],
)
def test_other_queues_come_first(weights: list[dict[str, int]], code: str | None) -> None:
    """FETCH-2: strict order and weights, in all processes."""
    serving = tuple(process(f"p{n}", weights=one) for n, one in enumerate(weights))
    found = codes(queued(), processes=serving, queues=OTHERS)
    assert found == [*([code] if code else []), "next"]


def test_weights_of_older_processes() -> None:
    """BEAT-4: `weights` without `capsules`; without both, nothing is said."""
    old: dict[str, Any] = {"queues": ["high", "q"], "version": "7.3.2"}
    known = process(info={"weights": [{"high": 0, "q": 0}, {"x": 1}, "odd"]}, **old)
    assert codes(queued(), processes=(known,), queues=OTHERS) == ["starved-by-order", "next"]
    odd: list[dict[str, Any]] = [{}, {"weights": 3}, {"weights": [{}]}, {"weights": [{"high": 1}]}]
    for info in odd:
        unknown = process(info=info, **old)
        assert codes(queued(), processes=(known, unknown), queues=OTHERS) == ["next"]


def test_a_queue_of_another_type() -> None:
    broken = {"q": QueueFacts(0, paused=False, registered=True, problem="WRONGTYPE x")}
    assert codes(in_set("retry", NOW - 1), queues=broken) == ["poller-asleep", "queue-wrong-type"]


@over(
    ("late", "facts", "expected"),
    [
        (-0.001, {}, ["not-due"]),
        (0, {}, ["poller-asleep"]),
        (30, {}, ["poller-asleep"]),
        (30.1, {}, ["poller-stuck"]),
        (60, {"processes": (process(), process("r"))}, ["poller-asleep"]),
        (60.1, {"processes": (process(), process("r"))}, ["poller-stuck"]),
        (1, {"processes": ()}, ["no-poller"]),
        (1, {"processes": (process(quiet=True),)}, ["no-poller", "listeners-quiet"]),
        (1, {"leases": {}}, ["no-poller", "listeners-silent"]),
        (-60, {"processes": (process(queues=["x"]),)}, ["not-due", "no-listener"]),
        (-60, {"queues": {"q": facts_of(1, paused=True)}}, ["not-due", "queue-paused"]),
        (float("-inf"), {}, ["not-due"]),
        (float("inf"), {}, ["poller-stuck"]),
    ],
)
def test_a_job_that_waits_for_its_time(
    late: float, facts: dict[str, Any], expected: list[str]
) -> None:
    assert codes(in_set("schedule", NOW - late), **facts) == expected


def test_a_job_that_waits_for_its_retry() -> None:
    failed = {"error_class": "E", "error_message": "no", "retry_count": 1}
    assert codes(in_set("retry", NOW + 9, **failed)) == ["failed", "not-due"]
    unknown = {"error_class": "E", "error_message": "no job is registered for class A"}
    assert codes(in_set("retry", NOW + 9, **unknown)) == ["unknown-class", "not-due"]
    ruby = {"error_class": "NameError", "error_message": "uninitialized constant A"}
    assert codes(in_set("retry", NOW + 9, **ruby)) == ["unknown-class", "not-due"]
    assert codes(in_set("retry", NOW + 9, queue="")) == ["not-due", "no-queue"]
    (reason,) = explained(in_set("retry", NOW + 9)).reasons
    assert (reason.code, reason.remedy) == ("not-due", "run it now with: jobwire inspect retry j")


@over(
    ("fields", "code"),
    [
        ({"error_class": "E", "retry": True, "retry_count": 25}, "dead-retries-used"),
        ({"error_class": "E", "retry": True, "retry_count": 24}, "dead-killed"),
        ({"error_class": "E", "retry": 3, "retry_count": 3}, "dead-retries-used"),
        ({"error_class": "E", "retry": 3, "retry_count": 2}, "dead-killed"),
        ({"error_class": "E", "retry": 0, "retry_count": 0}, "dead-no-retries"),
        ({"error_class": "E", "retry": False}, "dead-no-retries"),
        ({"retry": False}, "dead-killed"),
        ({}, "dead-killed"),
        ({"error_class": "jobwire.PoisonPill", "retry_count": 0}, "dead-poison"),
        ({"error_class": "N", "error_message": "uninitialized constant A"}, "unknown-class"),
    ],
)
def test_a_dead_job(fields: dict[str, Any], code: str) -> None:
    assert codes(in_set("dead", NOW - 9, **fields)) == [code]


@over("place", ["queue:q", "schedule", "retry", "dead", "unreadable"])
def test_an_unreadable_payload(place: str) -> None:
    one = JobLocation(place, entry(b"{", place, NOW - 9), ahead=0, queue="q")
    assert codes(one) == ["unreadable"]


def held(lease: float | None, identity: str = "p") -> JobLocation:
    return JobLocation("held", job("private"), identity=identity, lease=lease, queue="q")


@over(
    ("where", "facts", "expected"),
    [
        (held(59.0), {}, ["held"]),
        (held(30.0), {"leases": {"p": 30.0}}, ["held-until-lease-ends"]),
        (held(59.0, "gone"), {"leases": {"gone": 59.0, "p": 59.0}}, ["held-until-lease-ends"]),
        (held(None, "gone"), {}, ["held-by-dead-process"]),
        (held(None, "gone"), {"processes": ()}, ["no-recoverer"]),
        (held(None, "gone"), {"processes": (process(version="8.1.7"),)}, ["no-recoverer"]),
        (held(None, "gone"), {"leases": {"p": 20.0}}, ["no-recoverer"]),
        (held(None, "p"), {"leases": {}}, ["no-recoverer"]),
    ],
)
def test_a_held_job(where: JobLocation, facts: dict[str, Any], expected: list[str]) -> None:
    """REL-4, REL-11: the process that recovers it, and the time."""
    assert codes(where, **facts) == expected


def test_a_running_job() -> None:
    record = JobLocation(
        "running", job("work"), identity="p", queue="q", run_at=NOW - 90, thread="t", lease=20.0
    )
    assert codes(record) == codes(record, held(59.0)) == codes(held(59.0), record) == ["running"]
    assert "90 s in thread t of process p" in explained(record).reasons[0].sentence
    silent = explained(record, leases={"p": 20.0}).reasons
    assert [reason.code for reason in silent] == ["running-on-silent-process"]
    assert "lease ends in 20 s" in silent[0].remedy
    foreign = explained(record, leases={}, processes=(process(version="8.1.7"),)).reasons
    assert "lost with basic fetch" in foreign[0].remedy


def test_a_job_in_two_places() -> None:
    assert codes(queued(), in_set("retry", NOW + 5)) == ["next", "not-due", "several-places"]
    assert codes(queued(), held(59.0)) == ["next", "held", "several-places"]


def test_a_job_that_is_not_found() -> None:
    assert codes() == ["not-found"]
    assert codes(cut_queues=["q"]) == ["search-incomplete"]
    state = IterationState("j", 2, None, 1.0, None)
    assert codes(iteration=state) == ["not-found-has-state"]


def test_names_cannot_steer_a_terminal() -> None:
    """SEC-6"""
    name = "\x1b[2J\u202e\udcff"
    one = JobLocation(f"queue:{name}", job(), ahead=3, queue=name)
    strange = process(name, queues=[name], quiet=True)
    for reason in explained(one, processes=(strange,)).reasons:
        assert reason.sentence.isprintable(), reason
        assert reason.remedy.isprintable()
        reason.sentence.encode()


def test_sentences_are_sentences() -> None:
    """Each reason is one sentence or two, and those that block have a remedy."""
    seen = explained(queued(3), in_set("retry", NOW - 100), in_set("dead", NOW), held(None)).reasons
    for reason in seen:
        assert reason.sentence[0].isupper() or reason.sentence[0].isdigit()
        assert reason.sentence.endswith(".")
        assert not reason.remedy.endswith(".")
        assert reason.remedy or not reason.blocks
