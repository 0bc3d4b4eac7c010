"""The commands that the server refuses to a user, found without carrying them out. [SEC-3]"""

from __future__ import annotations

from collections.abc import Sequence

from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Command, ErrorReply, Op, command

__all__ = ["of_scripts", "refused"]


def of_scripts(keys: Keys, identity: str, queue: str) -> list[Command]:
    """Return one command of each name that the scripts of a reliable worker call."""
    private, jobs, schedule = keys.private(identity), keys.queue(queue), keys.schedule
    return [
        command("EVALSHA", "0" * 40, 0),
        command("EXISTS", private),
        command("TYPE", private),
        command("GET", keys.lost),
        command("UNLINK", private),
        command("HGET", private, "x"),
        command("HMGET", keys.returned, "x"),
        command("HSET", private, "x", "x"),
        command("HDEL", private, "x"),
        command("HLEN", private),
        command("HINCRBY", keys.returned, "x", 1),
        command("RPOP", jobs, 1),
        command("RPUSH", jobs, "x"),
        command("LPUSH", jobs, "x"),
        command("SADD", keys.owners, "x"),
        command("SREM", keys.owners, "x"),
        command("SCARD", keys.owners),
        command("SISMEMBER", keys.paused, "x"),
        command("ZADD", keys.retry, 0, "x"),
        command("ZREM", schedule, "x"),
        command("ZSCORE", schedule, "x"),
        command("ZRANGE", schedule, 0, 0),
        command("ZREMRANGEBYSCORE", keys.dead, 1, 0),
        command("ZREMRANGEBYRANK", keys.dead, 1, 0),
        command("INCRBY", keys.lost, 1),
        command("EXPIRE", keys.returned, 1),
    ]


def refused(
    tried: Sequence[Command], *, endings: Sequence[str] = ("EXEC",)
) -> Op[dict[str, ErrorReply]]:
    """Return the commands that an ACL forbids, by name; none of them is carried out.

    The server checks them when it queues them in a transaction, which is then given up.

    Args:
        tried: The commands.
        endings: Commands that may end the transaction; the first one that is allowed is used.
    """
    # A connection that cannot leave the transaction would be lost for all later commands.
    steps = [command(name) for name in endings]
    replies = yield Batch(steps)  # outside of a transaction, an error in any case
    usable = [
        step
        for step, reply in zip(steps, replies, strict=True)
        if isinstance(reply, ErrorReply) and not reply.says("NOPERM")
    ]
    if not usable:
        return {endings[-1]: replies[-1]}
    ending = usable[0]
    # Without MULTI, the server would carry out what follows.
    begun, _ = yield Batch([command("MULTI"), ending], whole=True)
    if isinstance(begun, ErrorReply):
        return {"MULTI": begun}
    # The call without its argument makes the server give up the transaction at EXEC also.
    replies = yield Batch([command("MULTI"), command("GET"), *tried, ending], whole=True)
    return {
        str(step.args[0]): reply
        for step, reply in zip(tried, replies[2:-1], strict=True)
        if isinstance(reply, ErrorReply) and reply.says("NOPERM")
    }
