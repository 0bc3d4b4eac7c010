"""A cluster of three primaries, each with a replica: real servers, all on 127.0.0.1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import redis

from harness.servers import Reaper, Server, valkey_program, wait_until

__all__ = ["Cluster", "cluster"]

SLOTS = 16_384
NODE_TIMEOUT_MS = 1_000
_SETTINGS = (
    *("--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
    *("--repl-diskless-sync-delay", "0", "--cluster-allow-replica-migration", "no"),
)


class Cluster:
    """A cluster for tests.

    Args:
        nodes: Its nodes: the primaries, then as many replicas.
    """

    def __init__(self, nodes: Sequence[Server]) -> None:
        self.nodes = nodes
        half = len(nodes) // 2
        for number, node in enumerate(nodes[:half]):
            first, last = (SLOTS * part // half for part in (number, number + 1))
            self.ask(node, "CLUSTER", "ADDSLOTSRANGE", first, last - 1)
        for number, node in enumerate(nodes, start=1):
            self.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number)
            self.ask(node, "CLUSTER", "MEET", node.host, nodes[0].port)
        wait_until(self._has_met, what="the nodes to meet")
        for primary, replica in zip(nodes[:half], nodes[half:], strict=True):
            self.ask(replica, "CLUSTER", "REPLICATE", self.id_of(primary))
        wait_until(self.is_whole, what="the cluster")

    def url(self, path: str = "", *, nodes: Sequence[Server] = ()) -> str:
        """Return a URL with these nodes, or all."""
        hosts = ",".join(f"{node.host}:{node.port}" for node in nodes or self.nodes)
        return f"redis+cluster://{hosts}{path}"

    def ask(self, node: Server, *words: Any) -> Any:
        """Return the reply of a node to a command."""
        with redis.Redis(port=node.port) as client:
            return client.execute_command(*words)

    def id_of(self, node: Server) -> str:
        """Return the id of a node."""
        return str(self.ask(node, "CLUSTER", "MYID").decode())

    def slot_of(self, tag: str) -> int:
        """Return the slot of a hash tag."""
        return int(self.ask(self._up()[0], "CLUSTER", "KEYSLOT", f"{{{tag}}}"))

    def node_of(self, tag: str) -> Server:
        """Return the primary that has the slot of a hash tag, by its own word."""
        holder = wait_until(lambda: self._holder(tag), 60, what=f"a node with the slot of {tag}")
        assert holder is not None
        return holder

    def other_primary(self, tag: str) -> Server:
        """Return a primary that does not have the slot of a hash tag."""
        holder = self.node_of(tag)
        return next(node for node in self._up() if node is not holder and self.is_primary(node))

    def is_primary(self, node: Server) -> bool:
        """Return whether a node is a primary, by its own word."""
        return bool(self._replication(node)["role"] == "master")

    def promote_replica_of(self, tag: str) -> Server:
        """Kill the primary of a hash tag, and wait for its successor; return the killed one."""
        primary = self.node_of(tag)
        primary.kill()
        wait_until(lambda: self._holder(tag), 60, what="a replica to be promoted")
        return primary

    def move(self, tag: str, target: Server, *, classic: bool = False) -> None:
        """Move the slot of a hash tag: at once, or key by key as before Valkey 9."""
        slot, source, new = self.slot_of(tag), self.node_of(tag), self.id_of(target)
        if classic:
            self._move_keys(slot, source, target)
        else:
            self.ask(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", new)
        wait_until(lambda: self._holder(tag) is target, 60, what="the slot to move")

    def _move_keys(self, slot: int, source: Server, target: Server) -> None:
        old, new = self.id_of(source), self.id_of(target)
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", old)
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", new)
        while keys := self.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 10):
            words = ("MIGRATE", target.host, target.port, "", 0, 5_000, "KEYS", *keys)
            self.ask(source, *words)
        for node in (target, source, *self._up()):
            if self.is_primary(node):
                self.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", new)

    def is_whole(self) -> bool:
        """Return whether all nodes see the same cluster, and all replicas follow."""
        with suppress(redis.RedisError):
            return all(map(self._is_well, self.nodes))
        return False

    def _holder(self, tag: str) -> Server | None:
        slot = self.slot_of(tag)
        for node in self._up():
            if any(first <= slot <= last for first, last in self._own_slots(node)):
                return node
        return None

    def _has_met(self) -> bool:
        known = f"cluster_known_nodes:{len(self.nodes)}".encode()
        return all(known in self.ask(node, "CLUSTER", "INFO") for node in self.nodes)

    def _is_well(self, node: Server) -> bool:
        state = self.ask(node, "CLUSTER", "INFO")
        replication = self._replication(node)
        follows = replication["role"] == "master" or replication["master_link_status"] == "up"
        has_replica = replication["role"] == "slave" or replication["connected_slaves"] == 1
        return b"cluster_state:ok" in state and follows and has_replica

    def _replication(self, node: Server) -> Any:
        with redis.Redis(port=node.port) as client:
            return client.info("replication")

    def _own_slots(self, node: Server) -> Iterator[tuple[int, int]]:
        with suppress(redis.RedisError):
            for line in self.ask(node, "CLUSTER", "NODES").decode().splitlines():
                words = line.split()
                if words[2] == "myself,master":
                    for word in words[8:]:
                        first, _, last = word.partition("-")
                        if first.isdigit():
                            yield int(first), int(last or first)

    def _up(self) -> list[Server]:
        return [node for node in self.nodes if node.running]


@contextmanager
def cluster(reaper: Reaper, *settings: str) -> Iterator[Cluster]:
    """Start a cluster; it ends with the block.

    Args:
        reaper: Ends the servers if the test process dies.
        settings: Further words of their command lines.
    """
    with ExitStack() as stack:
        nodes = []
        for _ in range(6):
            nodes.append(Server(reaper, valkey_program(), *_SETTINGS, *settings))
            stack.callback(nodes[-1].close)
        yield Cluster(nodes)
