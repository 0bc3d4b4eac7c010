"""jobwire.protocol.wire: dialogues with Redis, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from jobwire.errors import MaybeWritten, NoReply, RedisRefused, RedisTrouble, RedisUnreachable
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.pushing import push, push_bulk
from jobwire.protocol.wire import (
    Batch,
    Command,
    ErrorReply,
    LuaScript,
    Message,
    Op,
    Script,
    Step,
    command,
    dialogue,
    together,
)

READONLY = ErrorReply("READONLY You can't write against a read only replica.")
NOSCRIPT = ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
OOM = ErrorReply("OOM command not allowed when used memory > 'maxmemory'.")
WRONGTYPE = ErrorReply("WRONGTYPE Operation against a key")
ABORTED = ErrorReply("EXECABORT Transaction discarded because of previous errors.")

Answer = list[Any] | Exception


def scripts(name: str) -> LuaScript:
    return LuaScript(f"sha-{name}", f"source of {name}".encode())


def converse(op: Op[Any], *answers: Answer) -> tuple[Any, list[Message]]:
    """Answer the messages of an operation; return its result and the messages.

    The operation has to end with the last answer. An exception is thrown into it.
    """
    sent: list[Message] = []
    waiting = list(answers)
    talk = dialogue(op, scripts)
    try:
        message = next(talk)
        while True:
            assert isinstance(message, Message)
            sent.append(message)
            assert waiting, f"one message too many: {message}"
            answer = waiting.pop(0)
            if isinstance(answer, Exception):
                message = talk.throw(answer)
            else:
                assert len(answer) == len(message.commands)
                message = talk.send(answer)
    except StopIteration as done:
        assert waiting == []
        return done.value, sent


def one(step: Step) -> Op[Any]:
    """Return the reply of a single step."""
    return (yield step)


def words(message: Message) -> list[tuple[Any, ...]]:
    return list(message.commands)


def test_a_command_is_a_message() -> None:
    reply, sent = converse(one(command("GET", "a")), [b"1"])
    assert reply == b"1"
    assert sent == [Message([("GET", "a")])]


def test_an_operation_without_steps_says_nothing() -> None:
    def silent() -> Op[int]:
        return 5
        yield command("PING")

    assert converse(silent()) == (5, [])


def test_a_script_is_called_by_its_hash() -> None:
    """LUA-2: the number of keys, the keys, then the arguments."""
    _, sent = converse(one(Script("done", ["a", "b"], [1, b"\xff"])), [b""])
    assert words(sent[0]) == [("EVALSHA", "sha-done", 2, "a", "b", 1, b"\xff")]


def test_a_forgotten_script_is_loaded_and_called_again() -> None:
    """LUA-3: it is loaded once, and both commands go in one write."""
    reply, sent = converse(one(Script("done", [], [])), [NOSCRIPT], [b"sha", 5])
    assert reply == 5
    assert words(sent[1]) == [
        ("SCRIPT", "LOAD", b"source of done"),
        ("EVALSHA", "sha-done", 0),
    ]


def test_a_script_that_stays_unknown_is_an_error() -> None:
    """LUA-3: the call is repeated only once."""
    with pytest.raises(RedisRefused, match="NOSCRIPT"):
        converse(one(Script("done", [], [])), [NOSCRIPT], [b"sha", NOSCRIPT])


def test_of_a_batch_only_the_missing_scripts_are_repeated() -> None:
    """LUA-3: the other scripts already ran."""
    steps: list[Command | Script] = [
        Script("done", [], [1]),
        command("PING"),
        Script("retry", [], []),
        Script("done", [], [2]),
    ]
    replies, sent = converse(
        one(Batch(steps)), [NOSCRIPT, b"PONG", 7, NOSCRIPT], [b"sha", "first", "second"]
    )
    assert replies == ["first", b"PONG", 7, "second"]
    assert words(sent[1]) == [
        ("SCRIPT", "LOAD", b"source of done"),
        ("EVALSHA", "sha-done", 0, 1),
        ("EVALSHA", "sha-done", 0, 2),
    ]


def test_a_transaction_is_one_write() -> None:
    """PUSH-2: MULTI to EXEC, and the reply is that of EXEC."""
    batch = Batch([command("SADD", "queues", "a"), command("LPUSH", "queue:a", b"{}")], atomic=True)
    reply, sent = converse(one(batch), [b"OK", b"QUEUED", b"QUEUED", [1, 1]])
    assert reply == [1, 1]
    assert words(sent[0]) == [
        ("MULTI",),
        ("SADD", "queues", "a"),
        ("LPUSH", "queue:a", b"{}"),
        ("EXEC",),
    ]


@pytest.mark.parametrize(
    ("replies", "code"),
    [
        ([b"OK", OOM, ABORTED], "OOM"),
        ([b"OK", b"QUEUED", [WRONGTYPE]], "WRONGTYPE"),
        ([b"OK", b"QUEUED", ABORTED], "EXECABORT"),
        ([OOM, OOM, ErrorReply("ERR EXEC without MULTI")], "OOM"),
    ],
)
def test_a_transaction_that_failed_says_why(replies: list[Any], code: str) -> None:
    """PUSH-8: the error is the first one of the transaction."""
    with pytest.raises(RedisRefused) as caught:
        converse(one(Batch([command("LPUSH", "a", "b")], atomic=True)), replies)
    assert caught.value.code == code


def test_errors_stand_in_the_list_of_a_batch() -> None:
    batch = Batch([command("GET", "a"), command("GET", "b")])
    assert converse(one(batch), [WRONGTYPE, b"1"])[0] == [WRONGTYPE, b"1"]


def test_a_refusal_is_raised_into_the_operation() -> None:
    def cautious() -> Op[str]:
        try:
            yield command("GET", "a")
        except RedisRefused as error:
            return error.code
        return ""

    assert converse(cautious(), [WRONGTYPE])[0] == "WRONGTYPE"


@pytest.mark.parametrize(
    "error",
    [
        READONLY,
        ErrorReply("NOREPLICAS Not enough good replicas to write."),
        ErrorReply("UNBLOCKED force unblock from blocking operation"),
        ErrorReply("ERR @user_script: 5: -READONLY You can't write script: 1a, on @user_script:5."),
    ],
)
def test_failover_errors_are_repeated_on_a_fresh_connection(error: ErrorReply) -> None:
    """PUSH-9: the same commands are sent again, at any position of the code in the text."""
    reply, sent = converse(one(command("LPUSH", "a", "b")), [error], [1])
    assert reply == 1
    assert sent == [Message([("LPUSH", "a", "b")]), Message([("LPUSH", "a", "b")], fresh=True)]


def test_a_transaction_is_repeated_whole() -> None:
    """PUSH-9: the refusal is among the replies before that of EXEC."""
    batch = Batch([command("LPUSH", "a", "b")], atomic=True)
    reply, sent = converse(one(batch), [b"OK", READONLY, ABORTED], [b"OK", b"QUEUED", [1]])
    assert reply == [1]
    assert sent[1] == Message(sent[0].commands, fresh=True)


def test_of_a_batch_only_what_failed_is_repeated() -> None:
    """PUSH-9 and REL-1: a fetch that was executed must not be executed again."""
    batch = Batch([Script("done", [], []), Script("fetch", [], []), command("INCR", "n")])
    reply, sent = converse(one(batch), [READONLY, [b"jobs"], READONLY], [1, 2])
    assert reply == [1, [b"jobs"], 2]
    assert len(sent) == 2
    assert sent[1] == Message([sent[0].commands[0], ("INCR", "n")], fresh=True)


@pytest.mark.parametrize("error", [READONLY, NOSCRIPT])
def test_nobody_is_told_that_a_half_done_batch_was_never_sent(error: ErrorReply) -> None:
    """REL-8: a caller without a reply has to know that its fetch may have been executed."""
    batch = Batch([Script("done", [], []), Script("fetch", [], [])])
    with pytest.raises(NoReply, match="no server"):
        converse(one(batch), [error, [b"jobs"]], RedisUnreachable("no server"))
    with pytest.raises(RedisUnreachable):
        converse(one(command("INCR", "n")), [READONLY], RedisUnreachable("no server"))


def test_failover_errors_are_repeated_once() -> None:
    """PUSH-9, PUSH-22 and PUSH-8: the second refusal is final."""
    with pytest.raises(RedisRefused, match="READONLY"):
        converse(one(command("LPUSH", "a", "b")), [READONLY], [READONLY])


def test_other_errors_are_not_repeated() -> None:
    """PUSH-9: a repeat only helps after a failover."""
    with pytest.raises(RedisRefused, match="OOM"):
        converse(one(command("LPUSH", "a", "b")), [OOM])


def test_a_failover_that_also_forgot_the_script() -> None:
    """LUA-3 and PUSH-9: the new server has never seen it."""
    reply, sent = converse(one(Script("done", [], [])), [READONLY], [NOSCRIPT], [b"sha", 5])
    assert reply == 5
    assert [message.fresh for message in sent] == [False, True, False]


def ready(count: int, at: float | None = None) -> list[ReadyPayload]:
    return [ReadyPayload(f"jid-{n}", "default", at, f"payload-{n}".encode()) for n in range(count)]


def test_the_words_of_a_push() -> None:
    """PUSH-1: LPUSH. PUSH-2 and KEY-1: the queue is registered in the same transaction."""
    _, sent = converse(push(Keys("n:"), ready(2)), [b"OK", b"QUEUED", b"QUEUED", [1, 2]])
    assert words(sent[0]) == [
        ("MULTI",),
        ("SADD", "n:queues", "default"),
        ("LPUSH", "n:queue:default", b"payload-0", b"payload-1"),
        ("EXEC",),
    ]


def test_the_words_of_a_scheduled_push() -> None:
    """SCHED-1: one command; `queues` is not touched."""
    _, sent = converse(push(Keys(), ready(2, at=5.5)), [2])
    assert words(sent[0]) == [("ZADD", "schedule", 5.5, b"payload-0", 5.5, b"payload-1")]


def test_a_mixed_push_is_one_transaction() -> None:
    """BULK-5: each payload to its own queue, or to the schedule."""
    jobs = [
        ReadyPayload("1", "a", None, b"one"),
        ReadyPayload("2", "b", 7.0, b"two"),
        ReadyPayload("3", "b", None, b"three"),
        ReadyPayload("4", "a", None, b"four"),
    ]
    _, sent = converse(push(Keys(), jobs), [b"OK", *[b"QUEUED"] * 4, [2, 2, 1, 1]])
    assert words(sent[0])[1:-1] == [
        ("SADD", "queues", "a", "b"),
        ("LPUSH", "queue:a", b"one", b"four"),
        ("LPUSH", "queue:b", b"three"),
        ("ZADD", "schedule", 7.0, b"two"),
    ]


def test_silence_after_a_push_is_no_answer() -> None:
    """PUSH-8: it may have been written, and the error has the ids."""
    with pytest.raises(MaybeWritten, match="may have been written") as caught:
        converse(push(Keys(), ready(2)), NoReply("no reply"))
    assert (caught.value.written, caught.value.unsure) == ((), ("jid-0", "jid-1"))


@pytest.mark.parametrize(
    ("last", "is_unsure"),
    [
        (NoReply("cut"), True),
        (RedisUnreachable("gone"), False),
        ([b"OK", OOM, b"QUEUED", ABORTED], False),
    ],
    ids=["no reply", "unreachable", "refused"],
)
def test_a_bulk_push_says_how_far_it_got(last: Answer, is_unsure: bool) -> None:
    """BULK-6: earlier slices are written, the current one may be, later ones are in no list."""
    first = [b"OK", b"QUEUED", b"QUEUED", [1, 1_000]]
    with pytest.raises(RedisTrouble) as caught:
        converse(push_bulk(Keys(), ready(2_500)), first, last)
    second = tuple(f"jid-{n}" for n in range(1_000, 2_000))
    assert caught.value.written == tuple(f"jid-{n}" for n in range(1_000))
    assert caught.value.unsure == (second if is_unsure else ())


def test_the_operation_is_closed_when_the_conversation_breaks_off() -> None:
    closed = []

    def op() -> Op[None]:
        try:
            yield command("PING")
        finally:
            closed.append(True)

    talk = dialogue(op(), scripts)
    next(talk)
    talk.close()
    assert closed == [True]


def test_command_collects_its_words() -> None:
    assert command("SET", "a", b"\xff", 1, 1.5) == Command(("SET", "a", b"\xff", 1, 1.5))


def test_operations_side_by_side_share_their_messages() -> None:
    """ENV-5: each has its own replies, transaction and errors; the order is that of the caller."""
    went_on: list[str] = []

    def asks(*steps: Step) -> Op[Any]:
        replies = []
        for step in steps:
            replies.append((yield step))
            went_on.append(str(replies[-1]))
        return replies

    op = together(
        [
            asks(Batch([command("A")], atomic=True)),
            asks(command("B"), Script("first", ["k"], [])),
            asks(command("C"), command("D")),
            asks(),
        ]
    )
    refused = ErrorReply("WRONGTYPE of C")
    result, sent = converse(
        op, [b"OK", b"QUEUED", [1], 2, refused], [ErrorReply("NOSCRIPT")], [b"sha", 3]
    )
    assert [[each[0] for each in words(message)] for message in sent] == [
        ["MULTI", "A", "EXEC", "B", "C"],
        ["EVALSHA"],
        ["SCRIPT", "EVALSHA"],
    ]
    first, second, third, fourth = result
    assert (first, second, fourth) == ([[1]], [2, 3], [])
    assert isinstance(third, RedisRefused)
    assert went_on == ["[1]", "2", "3"]


def test_a_lost_connection_reaches_each_operation_that_waits() -> None:
    def patient() -> Op[str]:
        try:
            yield command("A")
        except RedisTrouble:
            return "came through"
        return ""

    result, sent = converse(together([patient(), one(command("B"))]), NoReply("gone"))
    assert len(sent) == 1
    assert result[0] == "came through"
    assert isinstance(result[1], NoReply)
