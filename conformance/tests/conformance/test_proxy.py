"""The proxy against a real server: it changes nothing except for the faults of its rules."""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from harness.servers import Server, wait_until
from jobwire_conformance.wire import resp
from jobwire_conformance.wire.faults import Action, Cut, Delay, Kill, Refuse, Rule, on_key
from jobwire_conformance.wire.proxy import Proxy, Switchboard
from jobwire_conformance.wire.resp import ProtocolError, Refusal, Splitter
from tests.rows import over


@pytest.fixture
def board() -> Iterator[Switchboard]:
    with Switchboard() as board:
        yield board


class Wire:
    """A client that sends and receives raw bytes."""

    def __init__(self, proxy: Proxy) -> None:
        self.socket = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
        self._splitter = resp.Splitter()
        self._heard: list[bytes] = []

    def say(self, *commands: str) -> None:
        """Send commands in one write."""
        self.socket.sendall(b"".join(resp.command(*each.split()) for each in commands))

    def hear(self) -> bytes | None:
        """Return the next reply; None if the connection has ended."""
        while not self._heard:
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._heard = self._splitter.feed(data)
        return self._heard.pop(0)

    def ask(self, *commands: str) -> list[bytes | None]:
        self.say(*commands)
        return [self.hear() for _ in commands]


@pytest.fixture
def open_wire() -> Iterator[type[Wire]]:
    wires: list[Wire] = []

    class Kept(Wire):
        def __init__(self, proxy: Proxy) -> None:
            super().__init__(proxy)
            wires.append(self)

    yield Kept
    for wire in wires:
        wire.socket.close()


# -- without faults


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("protocol", [2, 3])
def test_a_client_notices_nothing(
    server: Server, board: Switchboard, protocol: int, lockstep: bool
) -> None:
    proxy = board.open("127.0.0.1", server.port, lockstep=lockstep)
    with redis.Redis.from_url(proxy.url(), protocol=protocol) as client:
        big = os.urandom(3_000_000)
        assert client.set("big", big)
        assert client.get("big") == big
        with client.pipeline(transaction=False) as pipe:
            for number in range(500):
                pipe.rpush("list", f"{number}" * 100)
            assert pipe.execute() == list(range(1, 501))
        with client.pipeline() as pipe:
            assert pipe.incr("n").incr("n").execute() == [1, 2]
        assert len(client.lrange("list", 0, -1)) == 500
        assert client.eval("return {1, {2, 'x'}}", 0) == [1, [2, b"x"]]
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            client.incr("list")
        assert client.blpop(["none"], 0.05) is None
    assert proxy.cuts == 0
    assert [call.transaction for call in proxy.snapshot() if call.label == "INCRBY"] == [
        True,
        True,
        False,
    ]
    assert all(call.reply is not None for call in proxy.snapshot())


@pytest.mark.parametrize("protocol", [2, 3])
def test_what_comes_unasked_is_passed_on(server: Server, board: Switchboard, protocol: int) -> None:
    proxy = board.open("127.0.0.1", server.port)
    with redis.Redis.from_url(proxy.url(), protocol=protocol) as client, client.pubsub() as heard:
        heard.subscribe("news", "more")
        wait_until(lambda: heard.get_message(timeout=0.1))
        wait_until(lambda: heard.get_message(timeout=0.1))
        server.client().publish("news", "hello")
        got = wait_until(lambda: heard.get_message(timeout=0.1))
        assert got["data"] == b"hello"
        heard.ping()
        wait_until(lambda: heard.get_message(timeout=0.1))
    assert proxy.pushes == 3


def test_a_notice_of_client_tracking_is_no_reply(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    proxy = board.open("127.0.0.1", server.port)
    wire = open_wire(proxy)
    wire.ask("HELLO 3", "CLIENT TRACKING ON", "EXISTS q")
    server.client().lpush("q", "1")
    assert wire.hear() == b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nq\r\n"
    assert wire.ask("LLEN q") == [b":1\r\n"]
    assert proxy.snapshot()[-1].reply == b":1\r\n"


def test_odd_commands_pass_too(server: Server, board: Switchboard, open_wire: type[Wire]) -> None:
    proxy = board.open("127.0.0.1", server.port)
    wire = open_wire(proxy)
    wire.socket.sendall(b"PING\r\n\r\n*0\r\nECHO hi\r\n")
    assert [wire.hear(), wire.hear()] == [b"+PONG\r\n", b"$2\r\nhi\r\n"]
    wire.say("CLIENT REPLY SKIP", "SET a 1", "GET a")
    assert wire.hear() == b"$1\r\n1\r\n"
    watcher = open_wire(proxy)
    watcher.say("MONITOR")
    assert watcher.hear() == b"+OK\r\n"
    server.client().get("seen")
    assert b'"seen"' in wait_until(
        lambda: next(line for line in iter(watcher.hear, None) if b"seen" in line)
    )


def test_a_connection_that_blocks_holds_up_nobody(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    proxy = board.open("127.0.0.1", server.port, lockstep=True)
    waits, works = open_wire(proxy), open_wire(proxy)
    waits.say("BLPOP q 10")
    assert works.ask("PING", "LPUSH q x") == [b"+PONG\r\n", b":1\r\n"]
    assert waits.hear() == b"*2\r\n$1\r\nq\r\n$1\r\nx\r\n"


def test_in_lockstep_one_command_is_under_way_at_a_time(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    proxy = board.open("127.0.0.1", server.port, lockstep=True)
    wires = [open_wire(proxy) for _ in range(3)]
    for wire in wires:
        wire.say(*["INCR n"] * 50)
    assert all(wire.hear() for wire in wires for _ in range(50))
    spans = sorted((call.sent or 0, call.answered or 0) for call in proxy.snapshot())
    assert len(spans) == 150
    assert all(one[1] <= next_[0] for one, next_ in itertools.pairwise(spans))


def test_rules_can_be_forgotten(server: Server, board: Switchboard, open_wire: type[Wire]) -> None:
    proxy = board.open("127.0.0.1", server.port, rules=[Rule(Cut("before"), nth=2)])
    wire = open_wire(proxy)
    assert wire.ask("PING") == [b"+PONG\r\n"]
    proxy.clear()
    assert wire.ask("PING") == [b"+PONG\r\n"]


def test_the_trace_is_a_line_of_json_for_each_command(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    proxy = board.open("127.0.0.1", server.port, keep=2)
    wire = open_wire(proxy)
    wire.ask("PING", "SET a 1")
    wire.socket.sendall(resp.command("SET", b"\xff", "2"))
    wire.hear()
    first, second = (json.loads(call.as_json()) for call in proxy.snapshot())
    taken = first.pop("us")
    assert 0 < taken < 10_000_000
    assert first == {
        **{"seq": 2, "conn": 1, "label": "SET", "argv": ["SET", "a", "1"]},
        **{"reply": "+OK\r\n", "tx": False, "fault": None},
    }
    assert second["argv"] == ["SET", {"base64": "/w=="}, "2"]


def test_a_server_that_is_not_there_ends_the_connection(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    proxy = board.open("127.0.0.1", server.port)
    server.stop()
    wire = open_wire(proxy)
    wire.say("PING")
    assert wire.hear() is None
    server.start()
    assert open_wire(proxy).ask("PING") == [b"+PONG\r\n"]
    server.kill()
    wire = open_wire(proxy)
    wire.say("PING")
    assert wire.hear() is None


# -- faults


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_cut_falls_exactly_between_two_commands_of_a_pipeline(
    server: Server,
    board: Switchboard,
    open_wire: type[Wire],
    side: str,
    nth: int,
    lockstep: bool,
) -> None:
    cut = Cut("before") if side == "before" else Cut("after")
    proxy = board.open(
        "127.0.0.1", server.port, rules=[Rule(cut, label="RPUSH", nth=nth)], lockstep=lockstep
    )
    wire = open_wire(proxy)
    heard = wire.ask(*(f"RPUSH q {number}" for number in (1, 2, 3, 4)))
    applied = nth if side == "after" else nth - 1
    assert heard[nth - 1 :] == [None] * (5 - nth)
    wait_until(lambda: server.client().llen("q") == applied)
    assert [call.reply is not None for call in proxy.snapshot()] == [
        n <= applied for n in (1, 2, 3, 4)
    ]
    assert proxy.cuts == 1
    assert open_wire(proxy).ask("PING") == [b"+PONG\r\n"]
    assert server.client().llen("q") == applied


def test_what_was_answered_before_the_cut_arrives(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    proxy = board.open("127.0.0.1", server.port, rules=[Rule(Cut("before"), nth=3)])
    assert open_wire(proxy).ask("INCR n", "INCR n", "INCR n") == [b":1\r\n", b":2\r\n", None]


@pytest.mark.parametrize(("at", "count"), [(1, 0), (2, 0), (3, 0), (4, 0), (5, 2)])
def test_a_transaction_is_refused_as_a_server_would(
    server: Server, board: Switchboard, open_wire: type[Wire], at: int, count: int
) -> None:
    """No server executes a part of a transaction."""
    error = "LOADING the server is loading"
    proxy = board.open("127.0.0.1", server.port, rules=[Rule(Refuse(error), nth=at)])
    wire = open_wire(proxy)
    heard = wire.ask("MULTI", "RPUSH q 1", "RPUSH q 2", "EXEC", "PING")
    refused = resp.error(error)
    assert heard[at - 1] == refused
    if at == 1:
        assert heard[:4] == [refused] * 4
    elif at < 4:
        assert (heard[3] or b"").startswith(b"-EXECABORT")
    assert server.client().llen("q") == count
    assert wire.ask("RPUSH p 1", "MULTI", "RPUSH p 2", "EXEC")[3] == b"*1\r\n:2\r\n"


@pytest.mark.parametrize(("refused", "late"), [(1, 2), (1, 4), (2, 3), (2, 4)])
def test_a_delay_lets_nothing_out_of_a_refused_transaction(
    server: Server, board: Switchboard, open_wire: type[Wire], refused: int, late: int
) -> None:
    rules = [Rule(Refuse("OOM no memory"), nth=refused), Rule(Delay("before", 0.1), nth=late)]
    proxy = board.open("127.0.0.1", server.port, rules=rules)
    wire = open_wire(proxy)
    heard = wire.ask("MULTI", "RPUSH q 1", "RPUSH q 2", "EXEC")
    assert (heard[3] or b"").startswith((b"-OOM", b"-EXECABORT"))
    assert server.client().llen("q") == 0
    assert wire.ask("RPUSH q 3") == [b":1\r\n"]


def test_a_refused_transaction_is_recorded_as_the_client_sees_it(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    rule = Rule(Refuse("READONLY a replica"), label="RPUSH")
    proxy = board.open("127.0.0.1", server.port, rules=[rule])
    heard = open_wire(proxy).ask("MULTI", "RPUSH q 1", "EXEC")
    assert (heard[2] or b"").startswith(b"-EXECABORT")
    assert [call.reply for call in proxy.snapshot()] == heard


@pytest.mark.parametrize(("side", "count"), [("before", 1), ("after", 2)])
def test_a_transaction_is_cut_where_it_is_carried_out(
    server: Server, board: Switchboard, open_wire: type[Wire], side: str, count: int
) -> None:
    cut = Cut("before") if side == "before" else Cut("after")
    rule = Rule(cut, does="puts", fits=on_key("q"), nth=2)
    proxy = board.open("127.0.0.1", server.port, rules=[rule])
    wire = open_wire(proxy)
    assert wire.ask("MULTI", "RPUSH q 1", "EXEC")[2] == b"*1\r\n:1\r\n"
    assert wire.ask("MULTI", "RPUSH q 2", "EXEC")[2] is None
    wait_until(lambda: server.client().llen("q") == count)


def test_replies_that_are_held_back_come_late_and_in_order(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    pauses = itertools.chain([0.3, 0.0, 0.1], itertools.repeat(0.0))
    proxy = board.open("127.0.0.1", server.port, pause=lambda: next(pauses))
    wire = open_wire(proxy)
    started = time.monotonic()
    wire.say("INCR n")
    time.sleep(0.05)
    assert [call.reply for call in proxy.snapshot()] == [None], "not answered before it passes"
    assert wire.ask("INCR n", "QUIT") == [b":1\r\n", b":2\r\n"]
    assert wire.hear() == b"+OK\r\n"
    assert wire.hear() is None
    assert time.monotonic() - started >= 0.3


def test_an_error_is_answered_in_turn(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    rule = Rule(Refuse("OOM no memory"), label="INCR", nth=2, times=2)
    proxy = board.open("127.0.0.1", server.port, rules=[rule])
    wire = open_wire(proxy)
    heard = wire.ask("INCR n", "INCR n", "INCR n", "INCR n")
    assert heard == [b":1\r\n", b"-OOM no memory\r\n", b"-OOM no memory\r\n", b":2\r\n"]


@pytest.mark.parametrize("action", [Delay("before", 0.2), Delay("after", 0.2)])
def test_a_delay_holds_up_what_comes_behind_it(
    server: Server, board: Switchboard, open_wire: type[Wire], action: Action
) -> None:
    proxy = board.open("127.0.0.1", server.port, rules=[Rule(action, nth=2)], lockstep=True)
    wire = open_wire(proxy)
    started = time.monotonic()
    assert wire.ask("INCR n", "INCR n", "INCR n") == [b":1\r\n", b":2\r\n", b":3\r\n"]
    assert time.monotonic() - started >= 0.2


@pytest.mark.process
@pytest.mark.parametrize(("action", "applied"), [("before", 1), ("after", 2)])
def test_a_kill_is_a_crash_of_the_whole_process(
    server: Server, board: Switchboard, action: str, applied: int
) -> None:
    """From that command on, no data of any of its connections reaches the server."""
    program = (
        "import redis, sys\n"
        "one, other = (redis.Redis.from_url(sys.argv[1]) for _ in range(2))\n"
        "while True:\n"
        "    other.incr('m'); one.incr('n')\n"
    )
    pids: list[int] = []

    def end() -> None:
        os.kill(pids[0], signal.SIGKILL)

    kill = Kill("before", end) if action == "before" else Kill("after", end)
    proxy = board.open("127.0.0.1", server.port, lockstep=True)
    process = subprocess.Popen([sys.executable, "-c", program, proxy.url()])
    pids.append(process.pid)
    with closing(server.client()) as client:
        try:
            wait_until(lambda: client.get("n"))
            seen = sum(call.words[1] == b"n" for call in proxy.snapshot())
            proxy.add(Rule(kill))
            assert process.wait(60) == -signal.SIGKILL
        finally:
            process.kill()
            process.wait(60)
        n, m = int(client.get("n")), int(client.get("m"))
        assert seen <= n
        last = proxy.snapshot()[-1]
        assert (last.words[1], m - n) in (
            [(b"n", 1), (b"m", 0)] if action == "before" else [(b"n", 0), (b"m", 1)]
        )
        with pytest.raises(redis.ConnectionError):
            redis.Redis.from_url(proxy.url()).ping()


def test_all_connections_can_be_cut_and_new_ones_refused(
    server: Server, board: Switchboard, open_wire: type[Wire]
) -> None:
    proxy = board.open("127.0.0.1", server.port)
    wires = [open_wire(proxy) for _ in range(3)]
    assert [wire.ask("PING") for wire in wires] == [[b"+PONG\r\n"]] * 3
    proxy.refuse(True)
    assert proxy.cut() == 3
    assert [wire.hear() for wire in wires] == [None] * 3
    refused = open_wire(proxy)
    assert refused.hear() is None
    proxy.refuse(False)
    assert open_wire(proxy).ask("PING") == [b"+PONG\r\n"]


def test_a_client_that_connects_at_the_end_leaves_nothing_open(server: Server) -> None:
    """A connection may be between its accept and its first callback when the proxy closes."""
    for _ in range(40):
        with Switchboard() as board:
            port = board.open(server.host, server.port).port
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        for client in clients:
            client.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


def test_a_command_costs_little(server: Server, board: Switchboard) -> None:
    """This bound finds a broken proxy; it is not a measurement."""
    proxy = board.open("127.0.0.1", server.port)

    def least(url: str) -> float:
        with redis.Redis.from_url(url) as client:
            taken = []
            for _ in range(1000):
                started = time.perf_counter()
                client.ping()
                taken.append(time.perf_counter() - started)
            return min(taken)  # a busy machine disturbs most of them, not all

    assert least(proxy.url()) - least(server.url) < 0.002


# -- RESP frames are parsed wherever the stream is cut

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
