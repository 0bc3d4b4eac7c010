"""Tests of the backend for Django's tasks; python/tests/acceptance/test_django.py runs them."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import django
from django.core.checks import run_checks
from django.db import transaction
from django.test import TransactionTestCase, override_settings
from django.utils import timezone

from jobwire import testing
from jobwire.django import app
from jobwire.errors import RedisTrouble
from jobwire.inspect import Inspector
from jobwire.protocol.wire import command, once
from tests.django_site.orders import tasks
from tests.django_site.orders.models import Order

if django.VERSION >= (6, 0):
    from django.tasks import TaskResultStatus, default_task_backend, signals, task_backends
else:
    from django_tasks import TaskResultStatus, default_task_backend, signals, task_backends

BACKEND = "jobwire.django.tasks.JobwireBackend"


class TasksTest(TransactionTestCase):
    """Tasks become jobs, and a real worker runs them."""

    def setUp(self) -> None:
        tasks.CALLS.clear()
        self.heard: list[tuple[str, str, str]] = []
        self.heard_from_others: list[tuple[str, str, str]] = []  # than the thread of the test
        for name in ("task_enqueued", "task_started", "task_finished"):
            signal = getattr(signals, name)
            signal.connect(self.hear, dispatch_uid=name)
            self.addCleanup(signal.disconnect, dispatch_uid=name)

    def hear(self, signal: Any, task_result: Any, **_: Any) -> None:
        """Note a signal, for each side by itself: between them there is no order."""
        is_mine = threading.current_thread() is threading.main_thread()
        heard = self.heard if is_mine else self.heard_from_others
        heard.append((task_result.task.name, task_result.id, task_result.status))

    def statuses(self, heard: list[tuple[str, str, str]], jid: str) -> list[str]:
        """Return what was said of a task."""
        return [status for _, each, status in heard if each == jid]

    def test_a_task_is_a_job_whose_class_is_its_path(self) -> None:
        later = timezone.now() + timedelta(days=1)
        with testing.fake(app) as jobs:
            result = tasks.note.enqueue(1, [2], three={"x": None})
            tasks.note.using(run_after=later, queue_name="other").enqueue()
        first, second = jobs
        self.assertEqual(first.class_name, "tests.django_site.orders.tasks.note")
        self.assertEqual((first.args, first["jw_kwargs"]), ([1, [2]], {"three": {"x": None}}))
        self.assertEqual((first.jid, first["retry"], first.queue), (result.id, 3, "default"))
        self.assertEqual(
            (second.queue, second.args, "jw_kwargs" in second.fields), ("other", [], False)
        )
        self.assertAlmostEqual(second.at or 0, later.timestamp(), places=2)
        self.assertEqual(
            (result.status, result.args, result.attempts), (TaskResultStatus.READY, [1, [2]], 0)
        )
        self.assertEqual(self.heard[0], ("note", result.id, "READY"))

    def test_priorities_are_queues(self) -> None:
        for priority, queue in (
            (0, "default"),
            (9, "default"),
            (10, "urgent"),
            (100, "urgent"),
            (-9, "default"),
            (-10, "low"),
        ):
            with testing.fake(app) as jobs:
                tasks.note.using(priority=priority).enqueue()
            self.assertEqual([job.queue for job in jobs], [queue])

    def test_a_worker_runs_tasks(self) -> None:
        pk = Order.objects.create(number=1).pk
        with testing.real(app) as worker:
            noted = tasks.note.enqueue(1, two=3)
            tasks.anote.enqueue(4, word="five")
            identified = tasks.identify.enqueue(pk)
            app.client.push("tests.django_site.orders.tasks.note", [6])  # as from Ruby
            worker.drain()
            kept = app.client.result(noted.id)
        self.assertEqual((kept and kept.outcome, kept and kept.value), ("done", 42))
        self.assertCountEqual(
            tasks.CALLS, [((1,), {"two": 3}), (4, "five"), (identified.id, 1, [pk]), ((6,), {})]
        )
        self.assertEqual(self.statuses(self.heard, identified.id), ["READY"])
        told = self.statuses(self.heard_from_others, identified.id)
        self.assertEqual(told, ["RUNNING", "SUCCESSFUL"])

    def test_a_task_that_dies_has_failed(self) -> None:
        with testing.real(app) as worker:
            result = tasks.fail.enqueue()
            for _ in range(4):  # and three retries
                worker.drain(raise_errors=False)
                worker.promote()
            worker.drain(raise_errors=False)
        self.assertEqual(self.statuses(self.heard, result.id), ["READY"])
        told = self.statuses(self.heard_from_others, result.id)
        self.assertEqual(told, [*["RUNNING"] * 4, "FAILED"])

    async def test_tasks_from_asyncio(self) -> None:
        with testing.fake(app) as jobs:
            result = await tasks.anote.aenqueue(1)
            self.assertEqual([(job.jid, job.queue) for job in jobs], [(result.id, "slow")])
            await jobs.adrain()
            with self.assertRaisesRegex(TypeError, r"did nothing; use `await ...aenqueue\(\)`"):
                await tasks.note.enqueue(1)
            with self.assertWarnsRegex(RuntimeWarning, r"use `await ...aenqueue\(\)`") as seen:
                tasks.note.enqueue(1)
            self.assertEqual((seen.filename, len(jobs)), (__file__, 1))
        self.assertEqual(tasks.CALLS, [(1, "")])

    def test_the_framework_decides_when_to_enqueue(self) -> None:
        with testing.fake(app) as jobs:
            with transaction.atomic():
                tasks.note.enqueue(1)
                tasks.note.using(backend="careful").enqueue(2)
                transaction.on_commit(lambda: tasks.note.enqueue(3))
                self.assertEqual([job.args for job in jobs], [[1]])
            self.assertEqual([job.args for job in jobs], [[1], [2], [3]])

    def test_a_result_follows_its_task(self) -> None:
        """Across a failure and a retry, as any process reads it."""
        with testing.real(app) as worker:
            worker.launcher.quiet()
            later = timezone.now() + timedelta(days=1)
            deferred = tasks.note.using(run_after=later, queue_name="other", priority=3).enqueue()
            self.assertEqual(default_task_backend.get_result(deferred.id), deferred)
            result = tasks.flaky.enqueue(1, [2], word="three")
            self.assertEqual(tasks.flaky.get_result(result.id), result)
        with testing.real(app) as worker:
            result = tasks.flaky.enqueue(1, [2], word="three")
            worker.drain(raise_errors=False)
            result.refresh()
            self.assertEqual((result.status, result.attempts), (TaskResultStatus.READY, 1))
            self.assertEqual(result.errors[0].exception_class, LookupError)
            self.assertTrue(result.errors[0].traceback.endswith("LookupError: not yet\n"))
            with self.assertRaisesRegex(ValueError, "not finished"):
                _ = result.return_value
            worker.promote()
            worker.drain(raise_errors=False)
            result.refresh()
            self.assertEqual((result.status, result.attempts), (TaskResultStatus.SUCCESSFUL, 2))
            self.assertEqual(result.return_value, {"status": "RUNNING", "word": ["three"]})
            self.assertEqual((result.args, result.kwargs), ([1, [2]], {"word": "three"}))
            self.assertEqual(len(result.errors), 1)
            moments = (
                *(result.enqueued_at, result.started_at),
                *(result.last_attempted_at, result.finished_at),
            )
            self.assertEqual(sorted(moments), list(moments))
            key = app.client.redis.run(once(command("TTL", f"jobwire:task:{result.id}")))
            self.assertTrue(590 < key <= 600, key)

    def test_a_task_that_dies_has_failed_for_all_readers(self) -> None:
        with testing.real(app) as worker:
            result = tasks.fail.enqueue()
            lost = tasks.wrong.enqueue()
            for _ in range(4):
                worker.drain(raise_errors=False)
                worker.promote()
            worker.drain(raise_errors=False)
            result.refresh()
            lost.refresh()
            with Inspector(app.client.url) as inspector:
                inspector.sweep("dead", "add_to_queue")
            worker.drain(raise_errors=False)
            again = tasks.fail.get_result(result.id)
            foreign = app.client.push("tests.django_site.orders.tasks.fail", [], retry=False)
            worker.drain(raise_errors=False)
            pushed = tasks.fail.get_result(foreign or "")
        self.assertEqual((result.status, result.attempts), (TaskResultStatus.FAILED, 4))
        self.assertEqual([each.exception_class for each in result.errors], [ValueError] * 4)
        with self.assertRaisesRegex(ValueError, "Task failed"):
            _ = result.return_value
        self.assertEqual((lost.status, lost.attempts), (TaskResultStatus.FAILED, 1))
        self.assertIn("Unsupported type", lost.errors[0].traceback)
        self.assertEqual((again.status, again.attempts), (TaskResultStatus.FAILED, 5))
        self.assertEqual((pushed.status, pushed.attempts), (TaskResultStatus.FAILED, 1))

    async def test_results_from_asyncio(self) -> None:
        with testing.real(app) as worker:
            result = await tasks.anote.aenqueue(5)
            await worker.adrain()
            await result.arefresh()
            self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
            self.assertIsNone(result.return_value)
            self.assertEqual(await tasks.anote.aget_result(result.id), result)

    def test_results_of_collected_tasks(self) -> None:
        with testing.fake(app) as jobs:
            result = tasks.note.enqueue(1)
            self.assertEqual(default_task_backend.get_result(result.id), result)
            jobs.drain()
            result.refresh()
            self.assertEqual((result.status, result.return_value), ("SUCCESSFUL", 42))

    def test_a_task_is_enqueued_although_its_record_cannot_be_written(self) -> None:
        with testing.real(app) as worker:
            app.client.redis.run(once(command("CONFIG", "SET", "maxmemory", "1")))
            self.addCleanup(tasks.CALLS.clear)
            with self.assertLogs("jobwire.django", "WARNING") as logs, suppress(RedisTrouble):
                tasks.note.enqueue(1)
            app.client.redis.run(once(command("CONFIG", "SET", "maxmemory", "0")))
            worker.drain()
        self.assertIn("was not written", logs.output[0])

    def test_results_need_their_option(self) -> None:
        careful = task_backends["careful"]
        self.assertEqual(
            (default_task_backend.supports_get_result, careful.supports_get_result), (True, False)
        )
        with self.assertRaises(NotImplementedError):
            careful.get_result("1")

    def test_an_unknown_option_is_named(self) -> None:
        options = {"BACKEND": BACKEND, "OPTIONS": {"on_comit": True}}
        with override_settings(TASKS={"default": options}):
            (found,) = [m for m in run_checks() if m.id == "jobwire.E005"]
        self.assertIn("'on_comit'", found.msg)
