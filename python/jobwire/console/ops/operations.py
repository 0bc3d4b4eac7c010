"""The command layer under pages, command lines and terminals: read, act, explain."""

from __future__ import annotations

import copy
import itertools
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeVar

from jobwire.application.generation import GenerationSetting
from jobwire.connection.cluster import keys_at
from jobwire.console.ops import (
    bulk,
    detect,
    detect_facts,
    doctor,
    doctor_facts,
    explain,
    groups,
    journal,
    locate,
    paging,
    parking,
    results,
    roles,
    selection,
    undo,
)
from jobwire.console.ops.bulk import Bulk, BulkAction, BulkState
from jobwire.console.ops.detect import Detection
from jobwire.console.ops.doctor import Finding, Limits
from jobwire.console.ops.explain import Explanation
from jobwire.console.ops.groups import FailureGroups, FailureSet
from jobwire.console.ops.journal import JournalEntry
from jobwire.console.ops.locate import JobLocation
from jobwire.console.ops.paging import HeldPage, PlacePage, RunningPage
from jobwire.console.ops.parking import ParkedJob, ParkedPage, Unparked
from jobwire.console.ops.periodic import PeriodicOperations
from jobwire.console.ops.results import StoredResult
from jobwire.console.ops.roles import Action, Role
from jobwire.console.ops.selection import Preview, Selection
from jobwire.console.ops.undo import Deleted, Undone, UndoRecord
from jobwire.errors import ConfigError, JobwireError, NoReply
from jobwire.inspect.entry import QUEUE, Entry, SetName
from jobwire.inspect.filters import Filter
from jobwire.inspect.locks import UniqueLock
from jobwire.inspect.progress import StatusOfRuby, reported, ruby_status
from jobwire.inspect.sync import Inspector
from jobwire.protocol.groups import Member, read_members
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.output import OutputItem
from jobwire.protocol.periodic_entry import DEFAULT_NAMESPACE
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.times import When
from jobwire.protocol.wire import Batch, Op, command, once

__all__ = ["Operations"]

T = TypeVar("T")
BATCH_SIZE = 500  # parked jobs of one step
ROUND_TRIPS = 5  # of which the quickest counts


class Operations:
    """Reads, acts and explains in the name of one person. Threads may share it.

        with Operations("redis://localhost:6379/0", person="ada", role="operator") as operations:
            for progress in operations.bulk("retry", Selection(place="dead")):
                print(progress.seen, progress.total)

    Every action is checked against the role and written to the journal. Deletions can be undone for
    24 hours. `inspector` has further methods that read; its methods that write do not check the
    role, and leave no trace in the journal.

    All methods block. An asyncio program calls them in a thread, as with `asyncio.to_thread`.

    Every method raises `RedisTrouble` if Redis cannot be used, and every action `NotPermitted` if
    the role does not allow it.

    Args:
        url: Where Redis is; by default found as for `Client`.
        namespace: Prefix of every key; leave empty beside Sidekiq. [KEY-4]
        person: Name of the person, for the journal.
        role: `viewer`, `operator` or `admin`.
        generation: 7 or 8 to write times in the form of that Sidekiq; `auto` asks Redis. [GEN-5]
        timeout: Seconds to wait for a connection, and for a reply.
        clock: Returns epoch seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "",
        person: str = "",
        role: Role = "viewer",
        generation: GenerationSetting = "auto",
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.person = person
        self.role = roles.check_role(role)
        self._generation: GenerationSetting = generation
        self._clock = clock
        self.inspector = Inspector(
            url, namespace=namespace, generation=generation, timeout=timeout, clock=clock
        )
        self._keys = keys_at(self.inspector.redis.url, namespace)

    def acting_for(self, person: str, role: Role) -> Self:
        """Return the same operations for another person, over the same connections.

        Close the first one only.
        """
        other = copy.copy(self)
        other.person, other.role = person, roles.check_role(role)
        return other

    def permits(self, act: Action) -> bool:
        """Return True if the role allows an action."""
        return roles.permits(self.role, act)

    def require_bulk(self, act: BulkAction, chosen: Selection | None) -> None:
        """Check that the role allows an action on a selection; see `bulk`.

        To delete or kill all entries of a place needs the role of `clear`.
        """
        unfiltered = chosen is not None and chosen.unfiltered
        (roles.require_for_all if unfiltered else roles.require)(self.role, act)

    # -- reading

    def groups(
        self,
        places: Sequence[FailureSet] = ("retry", "dead"),
        *,
        only: Filter | None = None,
        examine: int | None = None,
        most: int = groups.MAX_GROUPS,
        progress: Callable[[int, int], None] | None = None,
    ) -> FailureGroups:
        """Return the failures of the retry set and the dead set, grouped by their cause.

        Args:
            places: The sets.
            only: The entries to count; all by default.
            examine: Maximum number of entries to examine of each set, those with the highest score
                first; all by default. 100,000 entries take about three seconds.
            most: Maximum number of groups; the entries of others count as `rest`.
            progress: Called after each page with the numbers seen and to see.
        """
        return self._run(
            groups.read(
                *(self._keys, places),
                now=self._clock(),
                only=only,
                examine=examine,
                most=most,
                progress=progress,
            )
        )

    def explain(
        self,
        jid: str,
        *,
        examine: int = locate.MAX_EXAMINED_JOBS,
        in_sets: int | None = None,
        in_queues: int | None = None,
        known: JobLocation | None = None,
    ) -> Explanation:
        """Return where a job is, and why it does not run now.

        Args:
            jid: The job id.
            examine: Maximum number of jobs to examine of each queue, those that run next first.
            in_sets: Maximum number of entries to examine of each set, those with the highest score
                first; all by default.
            in_queues: Maximum number of jobs to examine in all queues together; `examine` of each
                by default.
            known: Its place, to look nowhere else.
        """
        collecting = locate.collect(
            *(self._keys, jid),
            now=self._clock(),
            examine=examine,
            in_sets=in_sets,
            in_queues=in_queues,
            known=known,
        )
        return explain.explain(self._run(collecting))

    def page(
        self, place: str, *, start: int = 0, count: int = 25, rising: bool = False
    ) -> PlacePage:
        """Return some entries of a place by their position, in one round trip.

        Args:
            place: `schedule`, `retry`, `dead`, `unreadable` or `queue:<name>`.
            start: Position of the first entry, from 0.
            count: Maximum number of entries.
            rising: True to begin with the lowest score, or with the job of a queue that runs next.

        Raises:
            ConfigError: There is no such place.
        """
        return self._run(paging.page(self._keys, place, start=start, count=count, rising=rising))

    def running(self, *, start: int = 0, count: int = 50) -> RunningPage:
        """Return some of the jobs in execution, the longest running ones first.

        Args:
            start: Position of the first one, from 0.
            count: Maximum number of jobs.
        """
        return self._run(paging.running(self._keys, start=start, count=count))

    def result(self, jid: str) -> StoredResult | None:
        """Return the stored result of a job; None if it keeps none, has not ended or it expired."""
        return self._run(results.read(self._keys, jid))

    def output(self, jid: str) -> list[OutputItem]:
        """Return the last items that a job has emitted, in order."""
        return self._run(results.read_output(self._keys, jid))

    def progress(self, jid: str) -> JobProgress | None:
        """Return what a job has reported last about its progress; None if there is nothing."""
        return self._run(reported(self._keys, [jid])).get(jid)

    def ruby_status(self, jid: str) -> StatusOfRuby | None:
        """Return the status of a job as sidekiq-status keeps it; None if there is none."""
        return self._run(ruby_status(self._keys, jid))

    def group_members(self, fields: Mapping[str, object]) -> list[Member]:
        """Return the members of the group that a job is or belongs to, from its payload fields."""
        return self._run(read_members(self._keys, fields))

    def given_up(self) -> list[str]:
        """Return the processes without a heartbeat for so long that others have taken their jobs.

        Each has ended without a word, or hangs.
        """
        return self._run(paging.given_up(self._keys))

    def held(self, *, start: int = 0, count: int = 20, most: int = 10) -> HeldPage:
        """Return some of the processes that hold jobs, by identity.

        Args:
            start: Position of the first process, from 0.
            count: Maximum number of processes.
            most: Maximum number of jobs of each.
        """
        return self._run(paging.held(self._keys, start=start, count=count, most=most))

    def entry_at(
        self, place: SetName, score: float, jid: str, digest: str = "", secret: bytes = b""
    ) -> Entry | None:
        """Return an entry of a set by its score, its job id and the digest of its payload.

        None if it is gone, or if several entries fit because no digest is given.

        Args:
            place: The set.
            score: Its score.
            jid: Its job id, or "" if it has none.
            digest: The result of `ops.paging.digest` with the same secret.
            secret: Key of the digests.
        """
        return self._run(paging.entry_at(self._keys, place, score, jid, digest, secret))

    def job_near(self, queue: str, position: int, digest: str, secret: bytes = b"") -> Entry | None:
        """Return the job of a queue with a payload of this digest, if it is near a position.

        Args:
            queue: Name of the queue.
            position: From the head, or negative from the tail.
            digest: The result of `ops.paging.digest` with the same secret.
            secret: Key of the digests.
        """
        return self._run(paging.job_near(self._keys, queue, position, digest, secret))

    def doctor(
        self, limits: Limits | None = None, *, wait_replicas: int | None = None
    ) -> list[Finding]:
        """Examine this Redis, its queues and its processes; return the findings, errors first.

        Args:
            limits: Values from which there is a finding.
            wait_replicas: Replicas that must confirm a push of the application; None if it is not
                known.
        """
        latency = min(self._round_trip() for _ in range(ROUND_TRIPS))
        ahead = self._ahead()
        facts = self._run(doctor_facts.collect(self._keys, clock_ahead=ahead, latency=latency))
        return doctor.examine(self._keys, facts, limits, wait_replicas=wait_replicas)

    def detect(self) -> Detection:
        """Return which products write into this Redis, and the conflicts between them."""
        return detect.examine(self._run(detect_facts.collect(self._keys)))

    def journal(self, *, limit: int = 100, before: str | None = None) -> list[JournalEntry]:
        """Return the actions of people, newest first.

        Args:
            limit: Maximum number of entries.
            before: Id of an entry, to return older ones only.
        """
        return self._run(journal.read(self._keys, limit=limit, before=before))

    def undo_record(self, undo_id: str) -> UndoRecord | None:
        """Return a deletion that can be undone, or None if there is none with this id."""
        return self._run(undo.record(self._keys, undo_id))

    def undoable(self, undo_ids: Sequence[str]) -> set[str]:
        """Return those of some ids whose deletion can be undone, in one round trip."""
        return self._run(undo.undoable(self._keys, undo_ids))

    def preview(
        self,
        chosen: Selection,
        *,
        examine: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        enough: Callable[[], bool] | None = None,
    ) -> Preview:
        """Return how many entries a selection has, and a sample: the dry run of `bulk`.

        Args:
            chosen: The selection.
            examine: Maximum number of entries to examine; all by default.
            progress: Called after each page with the numbers seen and to see.
            enough: Called after each page; True ends the dry run.
        """
        return self._run(
            selection.preview(
                *(self._keys, chosen),
                now=self._clock(),
                examine=examine,
                progress=progress,
                enough=enough,
            )
        )

    # -- actions on one entry

    def retry(self, entry: Entry) -> bool:
        """Push an entry to its queue now, and give the attempt back; see `Inspector.retry`."""
        return self._act("retry", _target(entry), lambda: self.inspector.retry(entry))

    def add_to_queue(self, entry: Entry) -> bool:
        """Push an entry to its queue now; see `Inspector.add_to_queue`."""
        return self._act("add_to_queue", _target(entry), lambda: self.inspector.add_to_queue(entry))

    def kill(self, entry: Entry) -> bool:
        """Move an entry to the dead set; False if it was gone."""
        return self._act("kill", _target(entry), lambda: self.inspector.kill(entry))

    def reschedule(self, entry: Entry, at: When) -> bool:
        """Change the time at which an entry is due; see `Inspector.reschedule`."""
        return self._act("reschedule", _target(entry), lambda: self.inspector.reschedule(entry, at))

    def delete(self, entry: Entry) -> Deleted:
        """Delete an entry of a set or a job of a queue; a count of 0 means that it was gone.

        Raises:
            ConfigError: The entry is a running or held job.
        """
        roles.require(self.role, "delete")
        selection.check_place(entry.place)
        return self._delete("delete", _target(entry), self._removed(entry))

    # -- actions on many entries

    def bulk(
        self, act: BulkAction, chosen: Selection | None = None, *, resume: BulkState | None = None
    ) -> Generator[BulkState, None, None]:
        """Change all entries of a selection, and yield the state after each batch.

        The role is checked and the journal written before the first batch. To stop, close the
        iterator, or leave it. To go on, pass the last state as `resume`: also in another process,
        by way of `BulkState.as_dict`.

        Args:
            act: `retry`, `add_to_queue`, `kill` or `delete`; of a queue, only `delete`.
            chosen: The entries; left out with `resume`.
            resume: A state of an earlier call.

        Raises:
            ConfigError: The action is not possible for this place, or differs from that of
            `resume`;
                or neither a selection nor a state is given.
        """
        self.require_bulk(act, chosen if resume is None else resume.selection)
        state = resume
        if state is None:
            if chosen is None:
                raise ConfigError(f"{act}: name the entries with a selection, or pass `resume`")
            state = self._run(bulk.begin(self._keys, secrets.token_hex(8), act, chosen))
        elif state.act != act:
            raise bulk.other_act(state, act)
        if not state.finished:
            self._note(act, state, "begun", state.seen)
        return self._batches(Bulk(self._keys, self.person, self._generation, state))

    def clear(self, place: str) -> Deleted:
        """Delete a whole set, or a queue with its registration, in one step.

        Args:
            place: `schedule`, `retry`, `dead`, `unreadable` or `queue:<name>`.
        """
        roles.require(self.role, "clear")
        selection.check_place(place)
        name, now = secrets.token_hex(8), self._clock()
        if place.startswith(QUEUE):
            queue = place.removeprefix(QUEUE)
            removal = undo.clear_queue(self._keys, queue, name, person=self.person, now=now)
        else:
            key = str(selection.place_key(self._keys, place))
            removal = undo.clear_set(self._keys, place, key, name, person=self.person, now=now)
        return self._delete("clear", place, (name, removal))

    def undo(self, undo_id: str, *, progress: Callable[[int, int], None] | None = None) -> Undone:
        """Put deleted entries back where they were: the same bytes, scores and order.

        Args:
            undo_id: `undo` of `Deleted`, of `BulkState` or of an entry of the journal.
            progress: Called after each batch with the number of entries that are back, and of all.

        Raises:
            ConfigError: There is no such deletion, or its 24 hours are over.
        """
        roles.require(self.role, "undo")
        entry = self._write("undo", undo_id, 0, state="begun", undo=undo_id)
        with self._withdrawn_if_refused(entry):
            undone = self._run(undo.put_back(self._keys, undo_id, progress=progress))
        self._write("undo", f"{undone.place} {undo_id}", undone.restored, state="ended")
        return undone

    # -- parked jobs

    def parked(
        self, *, only: Filter | None = None, reason: str | None = None
    ) -> Iterator[ParkedJob]:
        """Yield parked jobs, the oldest first, page by page.

        Args:
            only: Conditions for a job; all by default.
            reason: The reason for which it is parked, such as `bid`; any by default.
        """
        walking = parking.walk(self._keys)
        chosen = only or Filter()
        while True:
            op = parking.page(self._keys, walking, chosen, reason, now=self._clock())
            if (page := self._run(op)) is None:
                return
            yield from page

    def parked_page(self, *, start: int = 0, count: int = 25) -> ParkedPage:
        """Return some parked jobs, the oldest first.

        Args:
            start: Position of the first one, from 0.
            count: Maximum number.
        """
        return self._run(parking.some(self._keys, start=start, count=count))

    def parked_at(self, moment: float, digest: str, secret: bytes = b"") -> ParkedJob | None:
        """Return a parked job by its score and the digest of its payload; None if it is gone.

        Args:
            moment: Its score.
            digest: The result of `ops.paging.digest` with the same secret.
            secret: Key of the digests.
        """
        return self._run(parking.at(self._keys, moment, digest, secret))

    def unpark_one(self, job: ParkedJob) -> bool:
        """Push one parked job to its queue; False if it was gone, or stays. [X-PARK-5]"""
        change = lambda: bool(self._run(parking.unpark(self._keys, [job])))  # noqa: E731
        return self._act("unpark", _target(job.entry), change)

    def unpark(
        self, *, only: Filter | None = None, reason: str | None = None, limit: int | None = None
    ) -> Unparked:
        """Push parked jobs to their queues with their exact bytes, the oldest first. [X-PARK-5]

        Args:
            only: Conditions for a job; all by default.
            reason: The reason for which it is parked; any by default.
            limit: Maximum number of jobs; all by default that are parked at the start.
        """
        roles.require(self.role, "unpark")
        # A worker may park a job again at once. It then has a later score, and must not come twice.
        start = self._clock()
        old = itertools.takewhile(
            lambda job: (job.entry.score or 0.0) <= start, self.parked(only=only, reason=reason)
        )
        jobs = itertools.islice(old, limit)
        target = f"parked reason={reason or '*'}"
        entry = self._write("unpark", target, 0, state="begun")
        done = seen = 0
        with self._withdrawn_if_refused(entry):
            while batch := [*itertools.islice(jobs, BATCH_SIZE)]:
                seen += len(batch)
                done += self._run(parking.unpark(self._keys, batch))
        if done:
            self._write("unpark", target, done, state="ended")
        else:
            self._run(journal.withdraw(self._keys, entry))
        return Unparked(done, seen - done)

    # -- actions on queues, processes and others

    def unlock(self, lock: UniqueLock) -> bool:
        """Release the lock of a unique job; see `Inspector.unlock`."""
        target = f"lock {lock.digest} of {lock.jid}"
        return self._act("unlock", target, lambda: self.inspector.unlock(lock))

    def pause(self, queue: str) -> bool:
        """Tell jobwire's workers to leave a queue alone; see `Inspector.pause`."""
        return self._act("pause", QUEUE + queue, lambda: self.inspector.pause(queue))

    def unpause(self, queue: str) -> bool:
        """Resume a paused queue; see `Inspector.unpause`."""
        return self._act("unpause", QUEUE + queue, lambda: self.inspector.unpause(queue))

    def quiet(self, identity: str) -> None:
        """Tell a process to fetch no more, at its next heartbeat."""
        self._signal("quiet", identity, self.inspector.quiet)

    def stop(self, identity: str) -> None:
        """Tell a process to end, at its next heartbeat."""
        self._signal("stop", identity, self.inspector.stop)

    def dump(self, identity: str) -> None:
        """Tell a process to log the work of its threads, at its next heartbeat."""
        self._signal("dump", identity, self.inspector.dump)

    def cancel(self, jid: str) -> Cancellation:
        """Cancel a job; see `Client.cancel`."""
        roles.require(self.role, "cancel")
        with self._withdrawn_if_refused(self._write("cancel", jid, 1)):
            return self.inspector.cancel(jid)

    def cancel_batch(self, batch_id: str) -> bool:
        """Drop the members of a batch that have not begun; see `Inspector.cancel_batch`."""
        target = f"batch {batch_id}"
        return self._act("cancel_batch", target, lambda: self.inspector.cancel_batch(batch_id))

    def mark_deploy(self, label: str) -> bool:
        """Mark a deployment for the charts; False if it was within the last minute."""
        return self._act("mark_deploy", label, lambda: self.inspector.mark_deploy(label))

    # -- periodic jobs

    def periodic(self, namespace: str = DEFAULT_NAMESPACE) -> PeriodicOperations:
        """Return the operations on periodic jobs.

        Args:
            namespace: Namespace of the entries in sidekiq-cron 2.
        """
        run = self.inspector.redis.run
        return PeriodicOperations(self._keys, namespace, run, self._act, self._clock)

    # -- itself

    def close(self) -> None:
        """Close the connections."""
        self.inspector.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, op: Op[T]) -> T:
        return self.inspector.redis.run(op)

    def _round_trip(self) -> float:
        start = time.perf_counter()
        self._run(once(Batch([command("PING")])))  # a refusal also takes a round trip
        return time.perf_counter() - start

    def _ahead(self) -> float:
        """Return by how many seconds this clock is ahead of the server's; 0 if that is refused."""
        before = self._clock()
        (reply,) = self._run(once(Batch([command("TIME")])))
        middle = (before + self._clock()) / 2
        server_time = doctor_facts.server_time(reply)
        return middle - server_time if server_time else 0.0

    def _write(self, act: Action, target: str, count: int, **more: str) -> bytes:
        fields = {"person": self.person, "act": act, "target": target, "count": count}
        return self._run(journal.write(self._keys, **fields, **more))

    def _note(self, act: Action, state: BulkState, when: str, count: int) -> None:
        self._write(
            *(act, state.selection.describe(), count),
            state=when,
            job=state.id,
            undo=state.id if act == "delete" else "",
        )

    def _act(self, act: Action, target: str, change: Callable[[], T]) -> T:
        """Do an action of one step; its entry of the journal stays only if the result is true."""
        roles.require(self.role, act)
        entry = self._write(act, target, 1)
        with self._withdrawn_if_refused(entry):
            changed = change()
        if not changed:
            self._run(journal.withdraw(self._keys, entry))
        return changed

    def _signal(self, act: Action, identity: str, send: Callable[[str], None]) -> None:
        def sent() -> bool:
            send(identity)
            return True

        self._act(act, identity, sent)

    def _removed(self, entry: Entry) -> tuple[str, Op[int]]:
        name, now = secrets.token_hex(8), self._clock()
        if entry.place.startswith(QUEUE):
            return name, undo.remove_job(self._keys, entry, name, person=self.person, now=now)
        key = str(selection.place_key(self._keys, entry.place))
        members = [entry.payload]
        return name, undo.remove_from_set(
            self._keys, key, entry.place, name, 0, members, person=self.person, now=now
        )

    def _delete(self, act: Action, target: str, removal: tuple[str, Op[int]]) -> Deleted:
        name, op = removal
        entry = self._write(act, target, 0, state="begun", undo=name)
        with self._withdrawn_if_refused(entry):
            count = self._run(op)
        if not count:
            self._run(journal.withdraw(self._keys, entry))
            self._run(undo.drop(self._keys, name))
            return Deleted(0, "")
        self._write(act, target, count, state="ended", undo=name)
        return Deleted(count, name)

    @contextmanager
    def _withdrawn_if_refused(self, entry: bytes) -> Iterator[None]:
        """Remove an entry of the journal if the server certainly changed nothing."""
        try:
            yield
        except NoReply:
            raise
        except JobwireError:
            self._run(journal.withdraw(self._keys, entry))
            raise

    def _batches(self, changing: Bulk) -> Generator[BulkState, None, None]:
        try:
            yield changing.state
            while not changing.state.finished:
                yield self._run(changing.step(now=self._clock()))
        finally:
            state = changing.state
            if state.total:
                self._note(state.act, state, "ended", state.done)


def _target(entry: Entry) -> str:
    """Return a job for the journal: its id and its place, no arguments."""
    return f"{entry.jid or '(no id)'} in {entry.place}"
