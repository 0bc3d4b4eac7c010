"""Tests of the backend for Django's tasks; python/tests/acceptance/test_django.py runs them."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import django
from django.core.checks import run_checks
from django.db import transaction
from django.test import TransactionTestCase, override_settings
from django.utils import timezone

from jobwire import testing
from jobwire.django import app
from tests.django_site.orders import tasks
from tests.django_site.orders.models import Order

if django.VERSION >= (6, 0):
    from django.tasks import TaskResultStatus, default_task_backend, signals
else:
    from django_tasks import TaskResultStatus, default_task_backend, signals

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

    def test_results_cannot_be_read(self) -> None:
        self.assertFalse(default_task_backend.supports_get_result)
        with self.assertRaises(NotImplementedError):
            default_task_backend.get_result("1")

    def test_an_unknown_option_is_named(self) -> None:
        options = {"BACKEND": BACKEND, "OPTIONS": {"on_comit": True}}
        with override_settings(TASKS={"default": options}):
            (found,) = [m for m in run_checks() if m.id == "jobwire.E005"]
        self.assertIn("'on_comit'", found.msg)
