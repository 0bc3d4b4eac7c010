"""Tests of jobwire.django in a real project; python/tests/acceptance/test_django.py runs them."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, aclosing
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlencode

from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from django.test import Client, TestCase, TransactionTestCase, override_settings

from jobwire import InvalidJob, testing
from jobwire.django import app
from jobwire.django.conf import find_problems
from jobwire.django.web import _web_app
from jobwire.testing import Jobs
from tests.django_site.orders import jobs as defined
from tests.django_site.orders.middleware import aquerying, querying
from tests.django_site.orders.models import Order


class Failure(Exception):
    """Rolls a block back."""


class WithJobs(TransactionTestCase):
    """Collects the jobs of each test."""

    databases = {"default", "other"}

    def setUp(self) -> None:
        self.jobs = self.enterContext(testing.fake(app))

    def numbers(self) -> list[int]:
        """Return the argument of each job that was written."""
        return [job.args[0] for job in self.jobs]


class CommitTest(WithJobs):
    """Real transactions."""

    def test_without_a_transaction_a_job_is_written_at_once(self) -> None:
        jid = defined.pay.enqueue(1)
        self.assertEqual([job.jid for job in self.jobs], [jid])

    def test_a_job_waits_for_the_commit(self) -> None:
        with transaction.atomic():
            jid = defined.pay.enqueue(1)
            defined.pay.enqueue_in(60, 2)
            defined.pay.enqueue_bulk([[3], [4]])
            self.assertRegex(jid or "", "^[0-9a-f]{24}$")
            self.assertEqual(self.numbers(), [])
        self.assertEqual(self.numbers(), [1, 2, 3, 4])
        self.assertEqual(next(iter(self.jobs)).jid, jid)
        self.assertIsNone(self.jobs.enqueued()[0].at)
        self.assertIsNotNone(self.jobs.enqueued()[1].at)

    def test_a_rollback_drops_a_job(self) -> None:
        with self.assertRaises(Failure), transaction.atomic():
            defined.pay.enqueue(1)
            raise Failure
        with transaction.atomic():
            defined.pay.enqueue(2)
            transaction.set_rollback(True)
        self.assertEqual(self.numbers(), [])

    def test_a_savepoint_that_is_rolled_back_drops_only_its_jobs(self) -> None:
        with transaction.atomic():
            defined.pay.enqueue(1)
            with self.assertRaises(Failure), transaction.atomic():
                defined.pay.enqueue(2)
                with transaction.atomic():
                    defined.pay.enqueue(3)
                raise Failure
            with transaction.atomic():
                defined.pay.enqueue(4)
        self.assertEqual(self.numbers(), [1, 4])

    def test_a_job_waits_for_all_databases(self) -> None:
        for outer, inner in (("default", "other"), ("other", "default")):
            with transaction.atomic(using=outer):
                with transaction.atomic(using=inner):
                    defined.pay.enqueue(1)
                self.assertEqual(self.numbers(), [])
            self.assertEqual(self.numbers(), [1])
            self.jobs.clear()
            with self.assertRaises(Failure), transaction.atomic(using=outer):
                with transaction.atomic(using=inner):
                    defined.pay.enqueue(2)
                raise Failure
            with transaction.atomic(using=outer):
                with self.assertRaises(Failure), transaction.atomic(using=inner):
                    defined.pay.enqueue(3)
                    raise Failure
                with self.assertRaises(Failure), transaction.atomic(using=outer):
                    with transaction.atomic(using=inner):
                        defined.pay.enqueue(4)
                    raise Failure
            self.assertEqual(self.numbers(), [])

    def test_a_job_waits_for_the_database_that_has_a_transaction(self) -> None:
        with transaction.atomic(using="other"):
            defined.pay.enqueue(1)
            self.assertEqual(self.numbers(), [])
        self.assertEqual(self.numbers(), [1])

    def test_a_job_need_not_wait(self) -> None:
        with transaction.atomic():
            defined.hurry.enqueue(1)
            defined.pay.options(on_commit=False).enqueue(2)
            defined.pay.options(on_commit=False).enqueue_bulk([[3]])
            app.client.push("RubyJob", [4], on_commit=False)
            defined.hurry.options(on_commit=True).enqueue(5)
            self.assertEqual(self.numbers(), [1, 2, 3, 4])
        self.assertEqual(self.numbers(), [1, 2, 3, 4, 5])

    def test_a_job_from_asyncio_waits_for_the_transaction_of_the_sync_code(self) -> None:
        with transaction.atomic():
            async_to_sync(defined.pay.aenqueue)(1)
            async_to_sync(defined.pay.aenqueue_bulk)([[2]])
            async_to_sync(defined.hurry.aenqueue)(3)
            self.assertEqual(self.numbers(), [3])
        self.assertEqual(self.numbers(), [3, 1, 2])

    def test_another_thread_has_its_own_transactions(self) -> None:
        with transaction.atomic():
            thread = threading.Thread(target=defined.pay.enqueue, args=[1])
            thread.start()
            thread.join()
            self.assertEqual(self.numbers(), [1])

    def test_an_invalid_job_is_refused_before_the_commit(self) -> None:
        with self.assertRaises(InvalidJob), transaction.atomic():
            defined.pay.enqueue(object())  # type: ignore[arg-type]
        self.assertEqual(self.numbers(), [])


class CaptureTest(TestCase):
    """Django's TestCase, whose transaction never commits."""

    def setUp(self) -> None:
        self.jobs: Jobs = self.enterContext(testing.fake(app))

    def test_jobs_are_there_after_the_program_has_left_its_transaction(self) -> None:
        defined.pay.enqueue(0)
        self.assertEqual(len(self.jobs), 1)
        with transaction.atomic():
            defined.pay.enqueue(1)
            self.assertEqual(len(self.jobs), 1)
        with self.assertRaises(Failure), transaction.atomic():
            defined.pay.enqueue(2)
            raise Failure
        self.assertEqual([job.args for job in self.jobs], [[0], [1]])

    def test_the_callbacks_of_others_stay(self) -> None:
        called: list[int] = []
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            transaction.on_commit(lambda: called.append(1))
            defined.pay.enqueue(1)
        self.assertEqual((called, len(self.jobs)), ([1], 1))

    def test_jobs_run_with_the_rows_of_the_test(self) -> None:
        with transaction.atomic():
            order = Order.objects.create(number=1)
            defined.pay.enqueue(order.pk)
        self.assertEqual(self.jobs.drain(), 1)
        order.refresh_from_db()
        self.assertTrue(order.paid)

    def test_async_jobs_run_with_the_rows_of_a_sync_test(self) -> None:
        for job in (defined.async_pay, defined.pay_by_others):
            for jobs in self.ways():
                order = Order.objects.create(number=1)
                job.enqueue(order.pk)
                jobs.drain()
                order.refresh_from_db()
                self.assertTrue(order.paid)

    async def test_all_jobs_run_with_the_rows_of_an_async_test(self) -> None:
        for job in (defined.pay, defined.async_pay, defined.pay_by_others):
            for blocks in (False, True):
                for jobs in self.ways():
                    order = await Order.objects.acreate(number=1)
                    if blocks:  # the loop of the test
                        job.options(on_commit=False).enqueue(order.pk)
                        jobs.drain()
                    else:
                        await job.aenqueue(order.pk)
                        await jobs.adrain()
                    await order.arefresh_from_db()
                    self.assertTrue(order.paid)

    def ways(self) -> Iterator[Jobs]:
        """Yield collected jobs, and jobs that run at once, with middleware of each kind."""
        for middleware in ([], [querying], [aquerying], [aquerying, querying]):
            for way in (testing.fake, testing.inline):
                with patch.object(app, "server_middleware", middleware), way(app) as jobs:
                    yield jobs


class WorkerTest(TransactionTestCase):
    """A real worker with its threads and its own Redis."""

    def worker(self, **settings: Any) -> AbstractContextManager[testing.RealWorker]:
        return testing.real(app, **settings)

    def make_orders(self, count: int) -> list[int]:
        return [Order.objects.create(number=number).pk for number in range(count)]

    def assert_paid(self, count: int) -> None:
        self.assertEqual(Order.objects.filter(paid=True).count(), count)

    def test_connections_are_closed_after_each_job_outside_of_middleware(self) -> None:
        made: list[int] = []

        def count(**_: Any) -> None:
            made.append(threading.get_ident())

        keys = self.make_orders(6)
        connection_created.connect(count)
        self.addCleanup(connection_created.disconnect, count)
        with self.worker(concurrency=2) as worker:
            defined.pay.enqueue_bulk([[key] for key in keys])
            worker.drain()
        # One for each job; with CONN_MAX_AGE, one for each thread.
        threads = [ident for ident in made if ident != threading.get_ident()]
        if connection.settings_dict["CONN_MAX_AGE"] == 0:
            self.assertEqual(len(threads), 6)
        else:
            self.assertEqual(len(threads), len(set(threads)))
        self.assert_paid(6)

    def test_async_jobs_query_in_threads_of_their_own(self) -> None:
        keys = self.make_orders(20)
        with self.worker() as worker:
            defined.async_pay.enqueue_bulk([[key] for key in keys])
            worker.drain()
        self.assert_paid(20)

    def test_isolated_jobs_have_fresh_connections(self) -> None:
        self.enterContext(patch.dict(os.environ, TEST_DATABASES="1"))
        keys = self.make_orders(2)
        with tempfile.TemporaryDirectory() as directory, self.worker(concurrency=1) as worker:
            for key in keys:
                defined.pay_apart.enqueue(key, directory)
                worker.drain()
            notes = [(Path(directory) / str(key)).read_text().split() for key in keys]
        self.assertEqual(notes[0][0], notes[1][0])
        self.assert_paid(2)

    def test_a_job_finds_the_row_of_its_transaction(self) -> None:
        with self.worker() as worker:
            for number in range(30):
                with transaction.atomic():
                    defined.pay.enqueue(Order.objects.create(number=number).pk)
            worker.drain()
        self.assert_paid(30)

    async def test_the_request_of_an_async_view_enqueues(self) -> None:
        order = await Order.objects.acreate(number=1)
        with self.worker() as worker:
            await defined.pay.aenqueue(order.pk)
            await worker.adrain()
            await app.aclose()
        await order.arefresh_from_db()
        self.assertTrue(order.paid)


class PageTest(TestCase):
    """The page of jobs as a view, for each kind of visitor."""

    def setUp(self) -> None:
        server = self.enterContext(testing.server())
        before = app.url
        app.connect(server.url)
        self.addCleanup(app.connect, before)
        self.addCleanup(_web_app.cache_clear)
        self.addCleanup(_web_app(server.url, (), "").close)
        app.client.push("Waits", [1], queue="video")

    def login(self, **rights: bool) -> None:
        self.client.force_login(User.objects.create_user("ada", **rights))

    def test_a_superuser_may_do_all(self) -> None:
        self.login(is_staff=True, is_superuser=True)
        self.assertRedirects(self.client.get("/jobs"), "/jobs/", 301)
        shown = self.client.get("/jobs/queues/video")
        self.assertContains(shown, "Waits")
        self.assertIn("frame-ancestors 'none'", shown["Content-Security-Policy"])
        self.assertTrue(self.client.cookies["jobwire_session"]["httponly"])
        for link in re.findall(r'(?:href|src)="(/[^"]*)"', shown.content.decode()):
            with self.subTest(link):
                self.assertTrue(link.startswith("/jobs/"))
                self.assertEqual(self.client.get(link.replace("&amp;", "&")).status_code, 200)
        self.assertEqual(self.act("pause"), 303)
        self.assertContains(self.client.get("/jobs/queues"), "paused")
        self.assertContains(self.client.get("/jobs/journal"), "ada")

    def act(self, name: str) -> int:
        """Send the form of an act on the queue; return the status of the answer."""
        page = self.client.get("/jobs/queues/video").content.decode()
        for action, inside in re.findall(r'<form[^>]*action="([^"]*)"(.*?)</form>', page, re.S):
            if action == f"/jobs/acts/{name}":
                fields = re.findall(r'name="([^"]*)"[^>]*value="([^"]*)"', inside)
                body = urlencode([(key, unescape(value)) for key, value in fields])
                sent = "application/x-www-form-urlencoded"
                enforcing = Client(enforce_csrf_checks=True)
                enforcing.cookies = self.client.cookies
                return int(enforcing.post(action, body, content_type=sent).status_code)
        return 0

    def test_staff_may_look(self) -> None:
        self.login(is_staff=True)
        self.assertContains(self.client.get("/jobs/queues/video"), "Waits")
        self.assertEqual(self.act("pause"), 0)
        self.assertEqual(self.client.get("/jobs/a%3Fc%25d%0A").status_code, 404)

    def test_others_are_refused_with_the_reason_in_the_log(self) -> None:
        with self.assertLogs("jobwire.web", "WARNING") as logged:
            self.assertRedirects(self.client.get("/jobs/dead"), "/admin/login/?next=/jobs/dead")
            self.login()
            self.assertEqual(self.client.get("/jobs/").status_code, 403)
        self.assertIn("no user is logged in", logged.output[0])
        self.assertIn("'ada' is not staff", logged.output[1])

    async def test_an_open_page_is_updated_with_asgi_only(self) -> None:
        await sync_to_async(self.login)(is_staff=True)
        await self.async_client.aforce_login(await User.objects.aget())
        accept = {"accept": "text/event-stream"}
        shown = await sync_to_async(self.client.get)("/jobs/queues", headers=accept)
        self.assertEqual(shown.status_code, 204)
        updated = await self.async_client.get("/jobs/queues", headers=accept)
        self.assertEqual(updated["Content-Type"], "text/event-stream; charset=utf-8")
        async with aclosing(aiter(updated)) as parts:
            while b"video" not in await anext(parts):
                pass
        updated.close()
        while _web_app(app.url, (), "")._streams.open:  # no visitor is left
            await asyncio.sleep(0.01)
        await app.aclose()


class ProjectTest(TestCase):
    """Settings, checks, commands and the admin."""

    databases = {"default", "other"}

    def test_jobs_of_installed_apps_are_found(self) -> None:
        self.assertLessEqual({"pay", "async_pay", "hurry"}, app.jobs.keys())
        self.assertEqual(app.jobs["pay"].defaults["retry"], 3)
        self.assertEqual(run_checks(), [])

    def test_the_admin_has_a_link_to_the_page(self) -> None:
        self.client.force_login(User.objects.create_superuser("ada"))
        page = self.client.get("/admin/")
        self.assertContains(page, '<a href="/background/">Jobs</a>')
        self.assertContains(page, "Recent actions")
        with override_settings(JOBWIRE={}):
            self.assertContains(self.client.get("/admin/"), '<a href="/jobs/">Jobs</a>')
            with override_settings(ROOT_URLCONF="tests.django_site.urls_of_admin"):
                self.assertNotContains(self.client.get("/admin/"), "jobwire-module")

    def test_a_check_warns_if_the_admin_comes_first(self) -> None:
        names = ["django.contrib.admin", "jobwire.django", "tests.django_site.orders"]
        others = ["django.contrib.auth", "django.contrib.contenttypes"]
        others += ["django.contrib.messages", "django.contrib.sessions"]
        with override_settings(INSTALLED_APPS=[*others, *names]):
            self.assertEqual([found.id for found in run_checks()], ["jobwire.W001"])

    def test_each_mistake_of_the_setting_is_named(self) -> None:
        for value, identifier, text, hint in (
            ([], "E001", "JOBWIRE is [], not a dict", "Write JOBWIRE = {"),
            ({"ULR": "x"}, "E002", "unknown key 'ULR'", "Did you mean 'URL'?"),
            ({"url": "x"}, "E002", "unknown key 'url'", "Did you mean 'URL'?"),
            ({"URL": 6379}, "E003", "JOBWIRE['URL'] is 6379, not a URL", "Write, for example"),
            ({"URL": "http://x"}, "E003", "http://x", "Write, for example"),
            ({"ON_COMMIT": "no"}, "E003", "'no', not True or False", "Write, for example"),
            ({"CLIENT_MIDDLEWARE": "a.b"}, "E003", "'a.b', not a list", "Write, for example"),
            ({"CLIENT_MIDDLEWARE": ["a.b"]}, "E004", "No module named 'a'", "dotted path"),
            ({"GENERATION": 6}, "E003", "generation: 6", "Write, for example"),
            ({"SHARDS": "redis://a"}, "E003", "one string is given", "Write, for example"),
            ({"PLACEMENT": "x"}, "E003", "'x' is not one of", "Write, for example"),
            ({"WAIT_REPLICAS": True}, "E003", "True, not a number", "Write, for example"),
            ({"BUFFER": True}, "E003", "True, not a dict or None", "Write, for example"),
            ({"BUFFER": {"max": 1}}, "E003", "unknown key 'max'", "Write, for example"),
            ({"BUFFER": {"max_jobs": 0}}, "E003", "max_jobs 0", "Write, for example"),
            ({"OPTIONS": {"retyr": 1}}, "E002", "unknown key 'retyr'", "backtrace"),
            ({"OPTIONS": {"retry": -1}}, "E003", "retry", "Write, for example"),
        ):
            with self.subTest(value), override_settings(JOBWIRE=value):
                (found,) = find_problems()
                self.assertEqual(found.identifier, identifier)
                self.assertIn(text, found.text)
                self.assertIn(hint, found.hint)
                self.assertEqual([m.id for m in run_checks()], [f"jobwire.{identifier}"])

    def test_a_project_with_a_mistake_does_not_start(self) -> None:
        from jobwire.django import project

        with (
            override_settings(JOBWIRE={"ULR": "x"}),
            self.assertRaisesMessage(ImproperlyConfigured, "Did you mean 'URL'?"),
        ):
            project.refuse_mistakes()

    def test_jobs_need_not_wait_at_all(self) -> None:
        from jobwire.django import project

        with override_settings(JOBWIRE={"ON_COMMIT": False}):
            other = project._make_app()
        with testing.fake(other) as jobs, transaction.atomic():
            other.client.push("Any", [1])
            self.assertEqual(len(jobs), 1)

    def test_jobs_may_be_on_shards(self) -> None:
        from jobwire.django import project

        shards = {name: f"redis://127.0.0.1:1/{name}" for name in "12"}
        with override_settings(JOBWIRE={"SHARDS": shards, "PLACEMENT": "queue"}):
            other = project._make_app()
        self.assertEqual(other.shards, ("1", "2"))
        self.client.force_login(User.objects.create_superuser("bob"))
        with patch("jobwire.django.web.app", other):
            page = self.client.get("/jobs/")
            self.assertContains(page, "Unreachable", count=2)
            self.assertContains(page, 'href="/jobs/2/"')
            self.assertEqual(self.client.get("/jobs/2/queues").status_code, 503)
        with patch("jobwire.django.tasks.app", other):
            found = [one for one in run_checks() if one.id == "jobwire.E006"]
        self.assertEqual(len(found), 1)

    def test_databases_of_the_test_are_used(self) -> None:
        for alias in connections:
            self.assertIn("test", str(connections[alias].settings_dict["NAME"]))
