"""console.ops.signature and console.ops.groups: failures of one cause are one group."""

from __future__ import annotations

import random
import time
import uuid
from collections import Counter
from collections.abc import Hashable, Sequence
from math import comb
from typing import Any

import pytest

from jobwire.console.ops import roles
from jobwire.console.ops.groups import Grouping
from jobwire.console.ops.signature import application_frame, general_message, signature
from jobwire.errors import ConfigError, NotPermitted
from jobwire.inspect.entry import entry
from jobwire.protocol.payload import encode
from jobwire.protocol.retry import encode_backtrace
from tests.rows import over


def failure(jid: str = "j", place: str = "retry", score: float = 5.0, **fields: Any) -> Any:
    job = {"class": "A", "args": [], "jid": jid, "queue": "q", "error_class": "E"} | fields
    return entry(encode(job), place, score)


@over(
    ("message", "general"),
    [
        ("undefined method `foo' for nil:NilClass", "undefined method … for nil:NilClass"),
        ("undefined method 'foo' for nil", "undefined method … for nil"),
        ("can't convert String, don't", "can't convert String, don't"),
        ("'user_42'", "…"),
        ('no "a b" and \u201cc\u201d, \u2018d\u2019, \u00abe\u00bb', "no … and …, …, …"),
        ("10.0.0.12:6379 refused after 3.5 s", "N refused after N s"),
        ("1,234,567 rows", "N rows"),
        ("id 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "id N"),
        ("object at 0x7f3a", "object at N"),
        ("commit 9ae3c1d47b", "commit N"),
        ("customer cus_9s6XKzkNRiz8i3", "customer N"),
        ("deadbeef facade", "deadbeef facade"),
        ("two\n  lines\t\there", "two lines here"),
        ("", ""),
    ],
)
def test_the_message_of_a_group(message: str, general: str) -> None:
    assert general_message(message) == general


def test_long_messages_are_cut_before_they_are_searched() -> None:
    assert general_message("x " * 250) == ("x " * 250).strip()
    cut = general_message("it is " + "y" * 600)
    assert cut.endswith("…")
    assert len(cut) == 501
    assert general_message('said "' + "z" * 600 + '" twice') == "said ……"
    start = time.process_time()
    for text in ("'" * 10**6, '"`' * 10**6, "a1" * 10**6, "1." * 10**6, "\u201c" * 10**6):
        general_message(text)
        application_frame([text] * 1000)
    assert time.process_time() - start < 5


@over(
    ("lines", "frame"),
    [
        ([], ""),
        (["/srv/app/a.rb:85:in `perform'"], "/srv/app/a.rb in perform"),
        (["/srv/app/a.rb:85:in 'A#perform'"], "/srv/app/a.rb in A#perform"),
        (["/srv/app/jobs.py:10:in 'run'"], "/srv/app/jobs.py in run"),
        (["/usr/lib/ruby/gems/3.1/gems/x/x.rb:1:in `y'", "/app/b.rb:2:in `z'"], "/app/b.rb in z"),
        (["/v/site-packages/r.py:1:in 'y'", "/app/b.py:2:in 'z'"], "/app/b.py in z"),
        (["/usr/lib/python3.11/json/decoder.py:353:in 'raw'"], None),
        (["/app/releases/20260101/a.rb:1:in `x'"], "/app/releases/N/a.rb in x"),
        (["/app/a.rb:12"], "/app/a.rb"),
        (["something else 12"], "something else N"),
    ],
)
def test_the_frame_of_a_group(lines: list[str], frame: str | None) -> None:
    expected = "/usr/lib/pythonN/json/decoder.py in raw" if frame is None else frame
    assert application_frame(lines) == expected


def test_a_signature_has_four_parts() -> None:
    trace = encode_backtrace(["/app/a.py:3:in 'run'"])
    one = signature(failure(error_message="no 7", error_backtrace=trace))
    assert tuple(one) == ("E", "no N", "/app/a.py in run", "A")
    assert len(one.key) == 16
    other = signature(failure(error_message="no 8", error_backtrace=trace))
    assert other.key == one.key
    for fields in ({"class": "B"}, {"error_class": "F"}, {"error_message": "yes"}):
        changed: dict[str, Any] = {"error_message": "no 7", "error_backtrace": trace} | fields
        assert signature(failure(**changed)).key != one.key
    assert signature(failure(error_message="no 7")).key != one.key
    broken = signature(entry(b"{", "dead", 1.0))
    assert broken.error_class == "(unreadable payload)"
    assert broken.job_class == ""
    lone = b'{"class":"A","args":[],"jid":"j","queue":"q","error_message":"\\ud800"}'
    assert signature(entry(lone, "dead", 1.0)).key


def test_a_group_counts_places_and_times() -> None:
    """GEN-2: times of both generations."""
    grouping = Grouping()
    grouping.add(
        [
            failure("a", failed_at=100.5),
            failure("b", failed_at=1_795_192_000_000, retried_at=1_795_192_060_000),
            failure("c", "dead", 1_795_193_000.0),
            failure("d", "dead", 50.0, failed_at=200.5),
            failure("e"),
        ]
    )
    (group,) = grouping.groups()
    assert (group.count, group.places) == (5, {"retry": 3, "dead": 2})
    assert (group.first_seen, group.last_seen) == (100.5, 1_795_193_000.0)
    assert group.jids == ("a", "b", "c")
    empty = Grouping()
    empty.add([failure("e")])
    assert (empty.groups()[0].first_seen, empty.groups()[0].last_seen) == (None, None)
    assert Grouping().groups() == []


@pytest.mark.process
def test_the_number_of_groups_is_bounded() -> None:
    """A large group that begins late is not lost, and nothing is counted twice."""
    grouping = Grouping(most=10)
    for page in range(300):
        grouping.add(failure(error_message=f"{chr(97 + n)}{'x' * page}") for n in range(20))
        assert len(grouping._groups) <= 40
    grouping.add(failure(error_message="late") for _ in range(500))
    groups = grouping.groups()
    assert len(groups) == 10
    assert (groups[0].message, groups[0].count) == ("late", 500)
    assert grouping.matched == 6500
    assert sum(group.count for group in groups) + grouping.rest == 6500
    assert [group.count for group in groups] == sorted((one.count for one in groups), reverse=True)


def test_at_least_one_group_is_needed() -> None:
    with pytest.raises(ConfigError, match="most: 0"):
        Grouping(0)
    Grouping(1)


def test_roles_are_a_ladder() -> None:
    for act, lowest in roles.LOWEST_ROLE.items():
        for role in roles.ROLES:
            enough = roles.ROLES.index(role) >= roles.ROLES.index(lowest)
            assert roles.permits(role, act) == enough
            if enough:
                roles.require(role, act)
            else:
                with pytest.raises(NotPermitted):
                    roles.require(role, act)


CAUSES = 50  # of the labelled failures
LABELLED = 2000
TEMPLATES = (
    "no {thing} with id {number}",
    "undefined method '{method}' for nil",
    "{thing} {uuid} was not found",
    "timeout after {seconds} s while reading {thing}",
    "[{status}] {thing} service: request {hexadecimal} failed",
    'key "{word}" not found in {thing}',
    "could not connect to 10.0.{small}.{small}:{port}",
    "duplicate entry '{number}-{word}' for key '{thing}'",
    "expected {number} rows of {thing}, got {small}",
    "{thing} is locked",
)
THINGS = ("invoice", "customer", "shipment", "report", "basket")


def labelled(draw: random.Random) -> tuple[int, Any]:
    """Return the number of a cause, and a failure that it made; no two are spelled alike."""
    cause = draw.randrange(CAUSES)
    template, thing = TEMPLATES[cause % len(TEMPLATES)], THINGS[cause // len(TEMPLATES)]
    message = template.format(
        thing=thing,
        method=f"m{cause}",
        number=draw.randrange(1, 10**7),
        uuid=uuid.UUID(int=draw.getrandbits(128)),
        seconds=round(draw.uniform(1, 60), 2),
        status=500 + cause % 4,
        hexadecimal=f"{draw.getrandbits(64):016x}",
        word="".join(draw.choices("abcdefgh", k=8)),
        small=draw.randrange(256),
        port=draw.randrange(1024, 65536),
    )
    release = f"/srv/shop/releases/{draw.randrange(20250101, 20261231)}"
    line = draw.randrange(1, 400)
    trace = [
        f"/usr/lib/ruby/gems/3.1/gems/client-2.{draw.randrange(9)}/lib/client.rb:{line}:in `call'",
        f"{release}/app/{thing}s/step{cause}.rb:{draw.randrange(1, 400)}:in `run'",
        f"{release}/app/jobs/{thing}_job.rb:{draw.randrange(1, 400)}:in `perform'",
    ]
    fields: dict[str, Any] = {
        "class": f"{thing.title()}Job",
        "error_class": f"E{cause % 7}",
        "error_message": message,
        "error_backtrace": encode_backtrace(trace),
    }
    return cause, failure(f"{draw.getrandbits(96):024x}", **fields)


def adjusted_rand(one: Sequence[Hashable], other: Sequence[Hashable]) -> float:
    """Return the index of Hubert and Arabie: 1 for the same groups, about 0 for chance."""
    pairs = sum(comb(count, 2) for count in Counter(zip(one, other, strict=True)).values())
    rows = sum(comb(count, 2) for count in Counter(one).values())
    columns = sum(comb(count, 2) for count in Counter(other).values())
    expected = rows * columns / comb(len(one), 2)
    return (pairs - expected) / ((rows + columns) / 2 - expected)


def test_the_groups_are_those_of_the_causes() -> None:
    """C3 A5: 2,000 failures of 50 causes, with numbers, ids, names and lines that vary."""
    draw = random.Random(16)
    labels, failures = zip(*(labelled(draw) for _ in range(LABELLED)), strict=True)
    keys = [signature(one).key for one in failures]
    assert adjusted_rand(labels, keys) >= 0.95
    shuffled = draw.sample(keys, len(keys))
    assert adjusted_rand(labels, shuffled) < 0.05  # the index can tell
