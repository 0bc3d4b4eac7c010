"""RESP frames are parsed wherever the stream is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire_conformance.wire import resp
from jobwire_conformance.wire.resp import ProtocolError, Refusal, Splitter
from tests.rows import over

# (frame, value): both versions, and frames that clients in practice never see.
FRAMES: list[tuple[bytes, Any]] = [
    (b"+OK\r\n", b"OK"),
    (b"+\r\n", b""),
    (b"-ERR no\r\n", Refusal("ERR no")),
    (b":-12\r\n", -12),
    (b"$0\r\n\r\n", b""),
    (b"$-1\r\n", None),
    (b"$4\r\n\r\n\r\n\r\n", b"\r\n\r\n"),
    (b"*-1\r\n", None),
    (b"*0\r\n", []),
    (b"*2\r\n*1\r\n$1\r\na\r\n$-1\r\n", [[b"a"], None]),
    (b"_\r\n", None),
    (b"#t\r\n", True),
    (b",1.5\r\n", 1.5),
    (b",inf\r\n", float("inf")),
    (b"(123456789012345678901234567890\r\n", 123456789012345678901234567890),
    (b"!5\r\nERR x\r\n", Refusal("ERR x")),
    (b"=7\r\ntxt:abc\r\n", b"abc"),
    (b"%2\r\n+a\r\n:1\r\n+b\r\n*0\r\n", [(b"a", 1), (b"b", [])]),
    (b"~2\r\n:1\r\n:2\r\n", [1, 2]),
    (b">2\r\n+invalidate\r\n*1\r\n$1\r\nq\r\n", [b"invalidate", [b"q"]]),
    (b"|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n", b"v"),
    (b"|0\r\n:1\r\n", 1),
    (b"*2\r\n|1\r\n+a\r\n*1\r\n:1\r\n:7\r\n:8\r\n", [7, 8]),
    (b"$?\r\n;4\r\nHell\r\n;1\r\no\r\n;0\r\n", b"Hello"),
    (b"$?\r\n;0\r\n", b""),
    (b"*?\r\n:1\r\n*?\r\n.\r\n$?\r\n;1\r\nx\r\n;0\r\n.\r\n", [1, [], b"x"]),
    (b"%?\r\n+a\r\n:1\r\n.\r\n", [(b"a", 1)]),
]


@pytest.mark.parametrize(("frame", "says"), FRAMES, ids=lambda value: repr(value)[:40])
def test_a_frame_is_found_at_every_cut(frame: bytes, says: Any) -> None:
    assert resp.decode(frame) == says
    for cut in range(len(frame)):
        splitter = Splitter()
        assert splitter.feed(frame[:cut]) == []
        assert splitter.incomplete == frame[:cut]
        assert splitter.feed(frame[cut:] + b"+next\r\n") == [frame, b"+next\r\n"]
        assert splitter.incomplete == b""


def _frame(value: Any) -> bytes:
    """Encode a value in one of the ways of RESP."""
    match value:
        case None:
            return b"_\r\n"
        case int():
            return b":%d\r\n" % value
        case bytes():
            return b"$%d\r\n%s\r\n" % (len(value), value)
        case Refusal(message):
            return resp.error(message)
        case list():
            return b"*%d\r\n" % len(value) + b"".join(map(_frame, value))
    raise AssertionError(value)


VALUES = st.recursive(
    st.none()
    | st.integers()
    | st.binary(max_size=20)
    | st.sampled_from([b"\r\n", b"$3\r\n", b"*1\r\n", b""])
    | st.just(Refusal("ERR broken")),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(values=st.lists(VALUES, max_size=5), data=st.data())
def test_a_stream_means_the_same_however_it_is_cut(values: list[Any], data: st.DataObject) -> None:
    frames = [_frame(value) for value in values]
    stream = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    splitter = Splitter()
    parsed = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        parsed += splitter.feed(stream[start:end])
    assert parsed == frames
    assert [resp.decode(frame) for frame in parsed] == values


@given(values=st.lists(VALUES, min_size=1, max_size=3))
def test_a_stream_may_come_byte_by_byte(values: list[Any]) -> None:
    frames = [_frame(value) for value in values]
    splitter = Splitter()
    parsed = [frame for byte in b"".join(frames) for frame in splitter.feed(bytes([byte]))]
    assert parsed == frames


@given(words=st.lists(st.binary(max_size=30), min_size=1, max_size=6))
def test_a_command_is_read_as_it_was_written(words: list[bytes]) -> None:
    frame = resp.command(*words)
    assert Splitter(inline=True).feed(frame) == [frame]
    assert resp.arguments(frame) == words


def test_a_command_may_be_typed_by_a_person() -> None:
    splitter = Splitter(inline=True)
    assert splitter.feed(b"PING\r\nSET a ") == [b"PING\r\n"]
    assert splitter.feed(b"1\n*1\r\n$4\r\nPING\r\n") == [b"SET a 1\n", b"*1\r\n$4\r\nPING\r\n"]
    assert resp.arguments(b"SET a 1\n") == [b"SET", b"a", b"1"]


def test_a_long_string_is_not_looked_at_again_with_each_piece() -> None:
    splitter = Splitter()
    body = bytes(5_000_000)
    frame = b"$%d\r\n%s\r\n" % (len(body), body)
    pieces = [frame[at : at + 65536] for at in range(0, len(frame), 65536)]
    assert [each for piece in pieces for each in splitter.feed(piece)] == [frame]


@over("stream", [b"?\r\n", b"$x\r\n", b"$1\r\nabc\r\n", b".\r\n", b";0\r\n", b"*1\r\n.\r\n"])
def test_what_is_no_resp_is_refused(stream: bytes) -> None:
    with pytest.raises(ProtocolError):
        Splitter().feed(stream)


@pytest.mark.parametrize("frame", [b"*1\r\n:1\r\n", b"*1\r\n*0\r\n"])
def test_what_is_no_command_is_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a command"):
        resp.arguments(frame)
