"""jobwire.protocol.payload: from JSON text to fields, and back without loss of a byte."""

from __future__ import annotations

import base64
import json
import tracemalloc
import zlib
from typing import Any

import pytest

from jobwire.errors import InvalidArgument, MalformedPayload
from jobwire.protocol.compression import compress, inflate
from jobwire.protocol.payload import Job, LazyJob, decode, edit, encode
from jobwire.protocol.promotion import Promoted, promoted
from jobwire.protocol.times import Generation
from tests.rows import over

FULL = (
    b'{"retry":true,"queue":"default","args":[1,"x"],"class":"HardJob",'
    b'"jid":"9f2c1b7a4d3e5f60718293a4","created_at":1786960000123}'
)


def job(text: bytes) -> Job:
    return decode(text, "default")


@over(
    ("value", "text"),
    [
        ({"a": [1, None, True, "x"]}, b'{"a":[1,null,true,"x"]}'),
        ("é😀/<>&'\x7f\u2028", '"é😀/<>&\'\x7f\u2028"'.encode()),
        ('\x00\x1f\n\t"\\', b'"\\u0000\\u001f\\n\\t\\"\\\\"'),
        (1.0, b"1.0"),
        (-0.0, b"-0.0"),
        (0.1, b"0.1"),
        (1e16, b"1e16"),
        (5e-324, b"5e-324"),
        (1.7976931348623157e308, b"1.7976931348623157e308"),
        (1795192067.0, b"1795192067.0"),
        (2**64, b"18446744073709551616"),
        (-(10**40), b"-1" + b"0" * 40),
        ({}, b"{}"),
        ([], b"[]"),
    ],
)
def test_encode(value: Any, text: bytes) -> None:
    """PAY-2 compact; PAY-20, PAY-21 escapes; PAY-5 integers; PAY-6, PAY-25, PAY-26 floats."""
    assert encode(value) == text


def test_decode_keeps_the_bytes() -> None:
    """EXEC-5 and PAY-7: later changes start from the bytes that were fetched."""
    read = decode(FULL, "critical")
    assert read.text is FULL
    assert read.fields == json.loads(FULL)
    assert read.queue == "critical"
    assert read["queue"] == "default"


def test_depth_is_not_the_number_of_brackets() -> None:
    """PAY-3: brackets side by side and in strings do not nest."""
    flat = b'{"x":["' + b'[{\\"' * 200 + b'",' + b"[]," * 200 + b"{}]}"
    assert len(job(flat)["x"]) == 202


def test_a_hundred_thousand_brackets_are_no_harm() -> None:
    """PAY-3: the payload is refused, and the parser's stack does not overflow."""
    with pytest.raises(MalformedPayload):
        job(b'{"x":' + b"[" * 100_000)


@pytest.mark.parametrize("mark", ["encrypt", "compressed"])
def test_encoded_arguments_are_not_parameters(mark: str) -> None:
    """EXEC-13: a mark that means something refuses; null and false mean nothing."""
    for value in (b"null", b"false"):
        text = b'{"class":"A","args":[1],"%s":%s}' % (mark.encode(), value)
        assert job(text).parameters == [1]
    for value in (b"true", b"0", b'"x"'):
        text = b'{"class":"A","args":["x"],"%s":%s}' % (mark.encode(), value)
        with pytest.raises(TypeError, match=f"field {mark} says"):
            _ = job(text).parameters


@over(
    ("text", "names"),
    [
        (b'{"class":"A"}', ("A", "A")),
        (b'{"class":"A","wrapped":"B"}', ("A", "B")),
        (b'{"class":"A","wrapped":null}', ("A", "A")),
        (b'{"class":5}', ("", "")),
        (b"{}", ("", "")),
    ],
)
def test_class_names(text: bytes, names: tuple[str, str]) -> None:
    """PAY-12: a class that is not text, from a foreign writer, is the name of no job."""
    assert (job(text).class_name, job(text).display_class) == names


def test_get_and_repr() -> None:
    decoded = job(FULL)
    assert decoded.get("bid") is None
    assert decoded.get("bid", 5) == 5
    assert repr(decoded) == "<Job HardJob jid=9f2c1b7a4d3e5f60718293a4 queue=default>"


@over(
    ("before", "changes", "after"),
    [
        (b'{"a":1,"b":2}', {"c": 3}, b'{"a":1,"b":2,"c":3}'),
        (b'{"a":1,"b":2}', {"a": 3}, b'{"a":3,"b":2}'),
        (b'{"a":1,"b":2,"a":9}', {"c": 3}, b'{"a":9,"b":2,"c":3}'),
        (b'{"n":1.0e+22,"i":12345678901234567890123}', {}, None),
        (b'{"s":"\\n\\u001f","k":{"A":[{}]}}', {}, None),
        (b' { "a" : [ 1 , { } ] } \n', {}, b'{"a":[1,{}]}'),
        (b'{"s":" a : [ b ] , \\" "}', {}, None),
        (b"{}", {"x": "é"}, '{"x":"é"}'.encode()),
    ],
)
def test_edit(before: bytes, changes: dict[str, Any], after: bytes | None) -> None:
    """PAY-7: exact text of all other values. PAY-2: no white space. PAY-8: no duplicates."""
    assert edit(before, changes) == (before if after is None else after)


def test_edit_puts_defaults_first_and_drops() -> None:
    """SCHED-6: a missing retry or queue is added in front, `at` is removed."""
    text = b'{"queue":"q","at":5,"x":1}'
    defaults = {"retry": True, "queue": "default"}
    after = edit(text, {"y": 2}, defaults=defaults, drop=("at", "absent"))
    assert after == b'{"retry":true,"queue":"q","x":1,"y":2}'


def test_edit_leaves_a_null_where_a_default_is_missing() -> None:
    """PUSH-6: null is a chosen value."""
    assert edit(b'{"retry":null}', {}, defaults={"retry": True}) == b'{"retry":null}'


def test_a_lazy_job_reads_as_a_decoded_one() -> None:
    """EXEC-5: the same fields and the same text, in any order of access."""
    text = b'{"class":"A","args":[1.0],"big":12345678901234567890123,"retry_count":2}'
    whole = decode(text, "q")
    for lazy in (LazyJob(text, "q"), LazyJob(text, "q")):
        assert (lazy["class"], lazy.get("args"), lazy.get("none", 5)) == ("A", [1.0], 5)
        assert lazy.retry_count == whole.retry_count == 2
        assert lazy.edit({"retry_count": 3}) == whole.edit({"retry_count": 3})
        assert lazy.fields == whole.fields  # from here on they are decoded
        assert (lazy["class"], lazy.get("none", 5), lazy.get("big")) == ("A", 5, whole.get("big"))
    lazy.fields = {"class": "B"}
    assert lazy["class"] == "B"
    assert LazyJob(b'{"retry_count":true}', "q").retry_count is None


@over(
    ("text", "edited"),
    [
        (rb'{"a":"\u000a\/\u001F"}', rb'{"a":"\n/\u001f","x":1}'),
        (rb'{"a":"\ud83d\uDE00\u00e9"}', '{"a":"😀é","x":1}'.encode()),
        (rb'{"\u0061":"\u2028\u007f"}', '{"a":"\u2028\x7f","x":1}'.encode()),
        (rb'{"a":"\\/\\u000a"}', rb'{"a":"\\/\\u000a","x":1}'),
        (rb'{"a":[{"b":"\u003c\n"}]}', rb'{"a":[{"b":"<\n"}],"x":1}'),
    ],
)
def test_escapes_get_the_spelling_of_writers(text: bytes, edited: bytes) -> None:
    """PAY-20, PAY-21: Sidekiq finds a member by the text that it would write itself. PAY-7."""
    assert edit(text, {"x": 1}) == edited
    assert job(text).edit({"x": 1}) == edited
    assert json.loads(edited) == json.loads(text) | {"x": 1}


# -- due jobs

NOW = 1_795_192_067.25
SCHEDULED = (
    b'{"retry":true,"queue":"low","class":"A","args":[1.50,12345678901234567890],'
    b'"jid":"j","created_at":1795191268274}'
)
RETRIED = (
    b'{"retry":true,"queue":"low","args":[],"class":"A","jid":"j","created_at":1795190000.5,'
    b'"enqueued_at":1795190001.5,"error_message":"m","error_class":"E","failed_at":1795190002.5,'
    b'"retry_count":0,"bid":{"x":[]}}'
)


@over(
    ("text", "generation", "queue", "moved"),
    [
        (SCHEDULED, 8, "low", SCHEDULED[:-1] + b',"enqueued_at":1795192067250}'),
        (SCHEDULED, 7, "low", SCHEDULED[:-1] + b',"enqueued_at":1795192067.25}'),
        (RETRIED, 8, "low", RETRIED.replace(b"1795190001.5", b"1795192067250")),
        (
            b'{"class":"A","x":1}',
            8,
            "default",
            b'{"retry":true,"queue":"default","class":"A","x":1,'
            b'"created_at":1795192067250,"enqueued_at":1795192067250}',
        ),
        (
            b'{"queue":"a:b|c","retry":null,"created_at":null,"at":5,"class":"A"}',
            7,
            "a:b|c",
            b'{"queue":"a:b|c","retry":null,"created_at":null,"class":"A","enqueued_at":1795192067.25}',
        ),
        (
            b'{"retry":false,"queue":"q","created_at":1}',
            8,
            "q",
            b'{"retry":false,"queue":"q","created_at":1,"enqueued_at":1795192067250}',
        ),
    ],
)
def test_promoted(text: bytes, generation: Generation, queue: str, moved: bytes) -> None:
    """SCHED-6, SCHED-17, SCHED-18, SCHED-19, PUSH-3: new enqueued_at, defaults, no at; PAY-7."""
    assert promoted(text, now=NOW, generation=generation) == (queue, moved)


@pytest.mark.parametrize("queue", [b'""', b"null", b"5"])
def test_what_has_no_queue_cannot_be_promoted(queue: bytes) -> None:
    """SCHED-9: the name of the queue is not usable."""
    with pytest.raises(MalformedPayload) as caught:
        promoted(b'{"queue":%b}' % queue, now=NOW, generation=8)
    assert caught.value.rule == "SCHED-9"


def test_members_that_others_took_are_told_apart() -> None:
    assert Promoted(seen=5, moved=2, stuck=1).taken == 2


# -- compressed arguments


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["hello"], "eF6LVspIzcnJV4oFAA88AxE="),
        (["hello"], "eJyLVspIzcnJV4oFAA88AxE="),
        ([1, 2, 3], "eF6LNtQx0jGOBQAGlQGn"),
    ],
)
def test_arguments_that_gitlab_compressed(args: list[Any], text: str) -> None:
    """[X-ZIP-1] [X-ZIP-6] At any level; the text of the job stays."""
    written = encode({"class": "X", "args": [text], "compressed": True, "x": 1})
    job = decode(written, "default")
    inflate(job)
    assert (job.fields, job.text) == ({"class": "X", "args": args, "x": 1}, written)


@pytest.mark.parametrize("size", [99_999, 100_000, 100_001])
def test_arguments_are_compressed_from_a_size_on(size: int) -> None:
    """[X-ZIP-5] The size is that of the JSON of `args`, and all numbers keep their digits."""
    args = f'[10000000000000000000000000000001,1.0,"{"a" * (size - 41)}"]'.encode()
    assert len(args) == size
    written = compress(b'{"class":"X","args":%b,"jid":"1"}' % args, 100_000)
    job = decode(written, "default")
    assert (job.get("compressed"), job.get("original_job_size_bytes")) == (
        (None, None) if size < 100_000 else (True, size)
    )
    if size >= 100_000:
        assert len(written) < 1_000
        assert compress(written, 1) == written
        inflate(job)
    assert encode(job.args) == args


def test_a_small_text_cannot_fill_memory() -> None:
    """[X-ZIP-2] [X-ZIP-3] 40 MiB of zeros are refused after 32 MiB."""
    bomb = zlib.compress(bytes(40 << 20), 1)
    tracemalloc.start()
    for data, problem in ((bomb, "to more than 33554432"), (bomb[:99], "is cut"), (b"", "is cut")):
        text = base64.b64encode(data).decode()
        job = decode(encode({"class": "X", "args": [text], "compressed": True}), "default")
        with pytest.raises(InvalidArgument, match=problem):
            inflate(job)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


def packed(text: bytes) -> str:
    return base64.b64encode(zlib.compress(text)).decode()


@over(
    ("args", "problem"),
    [
        (["a", "b"], "must be one string"),
        ([1], "must be one string"),
        ("text", "must be one string"),
        (["é"], "cannot be read"),
        (["*"], "cannot be read"),
        ([base64.b64encode(b"plain").decode()], "cannot be read"),
        ([base64.b64encode(zlib.compress(b"[]") + b"x").decode()], "follows the end"),
        ([packed(b"[1")], "cannot be read"),
        ([packed(b'"text"')], "JSON array"),
        ([packed(b'[1],"class":"Y"')], "JSON array"),
    ],
)
def test_what_is_no_compressed_array_is_refused(args: Any, problem: str) -> None:
    """[X-ZIP-2]"""
    held = job(encode({"class": "X", "args": args, "compressed": True}))
    with pytest.raises(InvalidArgument, match=problem):
        inflate(held)
    assert held.fields["args"] == args


@pytest.mark.parametrize("mark", [None, False])
def test_a_job_that_is_marked_as_plain_stays(mark: object) -> None:
    """[X-ZIP-1]"""
    held = job(encode({"class": "X", "args": ["a"], "compressed": mark}))
    inflate(held)
    assert held.fields["args"] == ["a"]


@pytest.mark.parametrize(("stored", "version"), [(2, 2), (0, 0), ("2", 1), (True, 1), (2.0, 1)])
def test_the_version_of_a_job_is_1_unless_an_integer_says_another(
    stored: object, version: int
) -> None:
    """[X-PARK-2]"""
    assert job(encode({"class": "X", "jw_version": stored})).version == version
    assert job(b'{"class":"X"}').version == 1
