"""Tests of the outbox; python/tests/acceptance/test_django_database.py runs them."""

from __future__ import annotations

from contextlib import suppress

from django.core.management import call_command
from django.db import transaction
from django.test import TestCase

from jobwire import ConfigError, testing
from jobwire.django import app
from jobwire.django.outbox.models import OutboxJob
from jobwire.django.outbox.outbox import Outbox
from tests.django_site.orders import jobs as defined
from tests.django_site.orders.tests import Failure, WithJobs


class OutboxTest(WithJobs):
    """Real transactions."""

    def test_a_job_is_a_row_until_the_commit(self) -> None:
        with transaction.atomic():
            jid = defined.pay.enqueue(1)
            defined.pay.enqueue_bulk([[2], [3]])
            (first, *_) = rows = OutboxJob.objects.order_by("pk")
            self.assertEqual((first.jid, len(rows)), (jid, 3))
            self.assertEqual(str(first), f"{jid} in default")
            self.assertEqual(self.numbers(), [])
        self.assertEqual(self.numbers(), [1, 2, 3])
        self.assertEqual(OutboxJob.objects.count(), 0)

    def test_a_rollback_drops_rows(self) -> None:
        with transaction.atomic():
            defined.pay.enqueue(1)
            with suppress(Failure), transaction.atomic():
                defined.pay.enqueue(2)
                raise Failure
            self.assertEqual(OutboxJob.objects.count(), 1)
        with suppress(Failure), transaction.atomic():
            defined.pay.enqueue(3)
            raise Failure
        self.assertEqual(self.numbers(), [1])

    def test_nothing_is_stored_outside_of_its_transaction(self) -> None:
        defined.pay.enqueue(1)
        self.assertEqual(self.numbers(), [1])
        with transaction.atomic(), transaction.atomic(using="other"):
            defined.pay.enqueue(2)
            self.assertEqual(OutboxJob.objects.count(), 0)
        with transaction.atomic(using="other"):
            defined.pay.enqueue(3)
            self.assertEqual(OutboxJob.objects.count(), 0)
        with transaction.atomic():
            defined.pay.options(on_commit=False).enqueue(4)
            defined.pay.enqueue_bulk([])
            self.assertEqual(OutboxJob.objects.count(), 0)
        self.assertEqual(self.numbers(), [1, 2, 3, 4])

    def test_a_row_holds_the_name_of_its_redis_and_no_url(self) -> None:
        with transaction.atomic():
            defined.pay.enqueue(1)
            with app.via("mail"):
                defined.pay.enqueue(2)
            with app.via("redis://:secret@shard"), self.assertRaises(ConfigError) as refused:
                defined.pay.enqueue(3)
            self.assertIn("write App(redis={'NAME': URL})", str(refused.exception))
            self.assertNotIn("secret", str(refused.exception))
            names = list(OutboxJob.objects.order_by("pk").values_list("redis", flat=True))
            self.assertEqual(names, ["", "mail"])
        self.assertEqual(self.numbers(), [1, 2])

    def test_a_relay_writes_every_form_of_a_job(self) -> None:
        with self.assertRaises(RuntimeError), transaction.atomic():
            transaction.on_commit(self.fail_commit)
            defined.pay.enqueue(1)
            defined.pay.enqueue_in(3600, 2)
        self.assertEqual(Outbox().count(), 2)
        self.assertEqual(Outbox().relay(app), 0)  # too young
        call_command("jobwire_relay", "--once")
        self.assertEqual(Outbox().count(), 0)
        first, second = self.jobs.enqueued()
        self.assertEqual([first.args[0], second.args[0]], [1, 2])
        self.assertIsNone(first.at)
        self.assertIsNotNone(second.at)

    def fail_commit(self) -> None:
        """Stand for a process that ends between the commit and the write."""
        raise RuntimeError


class InTestCase(TestCase):
    """The transaction around a test is not the program's."""

    def test_a_job_is_written_at_the_end_of_the_programs_own_block(self) -> None:
        with testing.fake(app) as jobs:
            with transaction.atomic():
                defined.pay.enqueue(1)
            self.assertEqual([job.args[0] for job in jobs], [1])
            self.assertEqual(OutboxJob.objects.count(), 0)
