"""The contracts of the canonical scripts, as the suite judges calls by them."""

from __future__ import annotations

from jobwire.protocol.batches import Ended, Membership
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.foreign import park
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import NextJob, Outcome
from jobwire.protocol.reliable import script_done, script_fetch, script_finish
from jobwire.protocol.results import ResultToStore
from jobwire.protocol.wire import Script
from jobwire_conformance.data import scripts
from jobwire_conformance.judge import contracts
from tests.rows import over

KEYS = Keys()
ME = "app-1:4711:0123456789ab"
DAY = "2026-11-20"
LOCK = "jobwire:unique:" + "a" * 64
PRIVATE = f"jobwire:private:{ME}"
RETURNED = ["jobwire:returned", "jobwire:returned_at"]
NEXT = ["1:a", "", "", "", "0", "", ""]
NO_BATCH = [""] * 5
IN_BATCH = ["j", "done", "1", "1795192067.0", ""]
BATCH = [*(f"jobwire:batch:b-1{part}" for part in ("", ":open", ":failed")), "queue:b"]
NESTED = Membership("b-1", "c:d", Membership("b-2", "e"))
CALLS = [
    script_fetch(KEYS, ME, ["default", "a:b"], count=3, sequence=17),
    script_done(KEYS, ME, ["1:default", "2:a:b"], failed=False, day=DAY),
    *(
        script_finish(KEYS, ME, [("1:a:b", outcome)], day=DAY, dead_limits=limits)
        for outcome, limits in [
            (Outcome("retry", b"{}\n", 1_795_192_067.25, "failed"), None),
            (Outcome("queue", b"{}", counted=""), None),
            (Outcome("unreadable", b"[", counted=""), DeadSetLimits(1_795_192_067.25)),
            (park(KEYS, b"{}", "bid", 1_795_192_067.25), None),
            (Outcome(cancelled="j"), None),
            (Outcome(counted="expired", result=ResultToStore("j", 60, b"{}")), None),
            (Outcome(next=NextJob("c:d", b"{}"), unlocks=("a" * 64, "j")), None),
            (Outcome(ended=Ended(NESTED, "j", "done", "1795192067000")), None),
            (Outcome(output=("j", "done")), None),
        ]
    ),
    Script("promote", [KEYS.parked, KEYS.queues, KEYS.queue("a")], [b"{}", 1, "a", b"{}"]),
]


def fault(call: Script, *, keys: int = 0, arguments: list[str] | None = None) -> str | None:
    """Judge a call, without its last `keys` keys."""
    texts = [each.decode() if isinstance(each, bytes) else str(each) for each in call.args]
    names = [str(key) for key in call.keys]
    return contracts.fault(
        call.name, names[: len(names) - keys], texts if arguments is None else arguments
    )


@over("call", CALLS, ids=lambda call: call.name)
def test_calls_of_the_reference_keep_the_contracts(call: Script) -> None:
    """LUA-4: and a call with a key less, or without arguments, does not."""
    assert fault(call) is None
    assert fault(call, keys=1) is not None or call.name == "fetch"
    assert fault(call, arguments=["x"]) is not None


def test_every_script_has_a_contract() -> None:
    """LUA-4: except for those of annexes: periodic and unique jobs, limits, batches, output."""
    without = {name for name in scripts() if contracts.fault(name, [], []) is None}
    others = {name for name in scripts() if name.startswith(("periodic_", "limit_", "batch_"))}
    assert without == {*others, "emit", "lock", "ruby_lock", "unlock"}


def test_the_first_wrong_value_is_named() -> None:
    done = CALLS[1]
    assert fault(done, arguments=["5", "0", "2", "1:a"]) == "ARGV[3] = 2"
    assert fault(done, arguments=["5", "0", "1", "default"]) == "ARGV[4] = default"


@over(
    ("name", "keys", "arguments", "says"),
    [
        ("fetch", ["queue:a"], [ME, "1", "1", "b"], "ARGV queue name b for queue:a"),
        ("fetch", ["queue:a"], [ME, "1", "1", "a", "a"], "2 queue names for 1 queues"),
        ("fetch", ["queue:a"], ["x", "1", "1", "a"], f"ARGV identity x for {ME}"),
        ("recover", ["queue:a"], [ME, "5", "1795192067", "1:a", "2"], "queue list 2 of 1"),
        ("recover", ["queue:a"], [ME, "5", "1795192067000", "1:a", "1"], "ARGV[3] = 1795192067000"),
        ("put_back", ["queue:a"], ["5", "inf", "0", "1:a", "0"], "queue list 0 of 1"),
        ("promote", ["queue:a"], ["m", "1", "queue:a", "p"], "ARGV queue name queue:a for queue:a"),
        ("promote", ["queue:a"], ["m", "1", "a", "p"], None),
    ],
)
def test_arguments_belong_to_their_keys(
    name: str, keys: list[str], arguments: list[str], says: str | None
) -> None:
    """LUA-4: as table 18-2 says."""
    fixed = {
        "fetch": [PRIVATE, ME, "jobwire:owners", "jobwire:returned", "jobwire:paused"],
        "recover": [PRIVATE, ME, "jobwire:owners", *RETURNED, "jobwire:stat:recovered", "queues"],
        "put_back": [PRIVATE, *RETURNED, "jobwire:stat:lost", "queues"],
        "promote": ["retry", "queues"],
    }
    assert contracts.fault(name, [*fixed[name], *keys], arguments) == says


@over(
    ("place", "results", "arguments", "says"),
    [
        ("queue:a", [], ["", "0", "a", "", "", "3", "1:a", "0", "{}"], None),
        ("queue:a", [], ["", "0", "queue:a", "", "", "3", "1:a", "0", "{}"], "ARGV queue name"),
        ("queue:a", [], ["", "0", "", "", "", "3", "1:a", "0", "{}"], "ARGV queue name"),
        ("retry", [], ["failed", "0", "", "5", "9", "3", "1:a", "0", "{}"], "ARGV oldest 5"),
        ("dead", [], ["failed", "0", "", "", "", "3", "1:a", "0", "{}"], "ARGV oldest  "),
        ("dead", [], ["failed", "0", "", "5", "9", "3", "1:a", "5", "{}"], "ARGV[9] = 5"),
        ("retry", [], ["failed", "0", "", "", "", "3", "1:a", "0"], "9 ARGV"),
        ("retry", [], ["failed", "0", "", "", "", "3"], "no job"),
        ("retry", ["jobwire:result:j"], ["", "0", "", "", "", "3", "1:a", "0", ""], "keys of"),
        ("retry", [], ["", "0", "", "", "", "7", "1:a", "0", "", "", "5", "{}", ""], "keys of []"),
        ("retry", [LOCK], ["", "0", "", "", "", "7", "1:a", "0", "", "", "5", "{}", ""], "keys of"),
        ("retry", [LOCK], ["", "0", "", "", "", "7", "1:a", "0", "", "", "0", "", "j"], None),
        ("retry", ["queue:b"], ["", "0", "", "", "", "14", *NEXT, "b", "{}", *NO_BATCH], None),
        ("retry", ["queue:b"], ["", "0", "", "", "", "14", *NEXT, "c", "{}", *NO_BATCH], "keys of"),
        ("retry", ["queue:b"], ["", "0", "", "", "", "14", *NEXT, "", "", *NO_BATCH], "keys of"),
        ("retry", BATCH, ["", "0", "", "", "", "14", *NEXT, "", "", *IN_BATCH], None),
        ("retry", BATCH[:3], ["", "0", "", "", "", "14", *NEXT, "", "", *IN_BATCH], "keys of"),
    ],
)
def test_the_jobs_of_a_finish_belong_to_its_place(
    place: str, results: list[str], arguments: list[str], says: str | None
) -> None:
    """LUA-4: as tables 18-1 and 18-2 say."""
    keys = [PRIVATE, place, "stat:processed", f"stat:processed:{DAY}", "stat:failed"]
    keys += [f"stat:failed:{DAY}", *RETURNED, "jobwire:stat:lost", "queues"]
    keys += ["jobwire:stat:expired", "jobwire:cancelled", *results]
    problem = contracts.fault("finish", keys, ["5", *arguments])
    assert problem is None if says is None else (problem or "").startswith(says)


def test_one_queue_list_twice_in_a_call_breaks_the_contract() -> None:
    """LUA-4: table 18-2 has each queue list once in a call."""
    assert fault(script_fetch(KEYS, ME, ["a", "a"], count=1, sequence=1)) is not None
    assert fault(script_fetch(KEYS, ME, ["a", "b"], count=1, sequence=1)) is None
