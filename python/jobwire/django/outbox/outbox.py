"""The rows of the outbox of a Django project."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from django.db import connections, router, transaction
from django.utils import timezone

from jobwire.application.app import App
from jobwire.outbox.rows import Row, check_redis, stored
from jobwire.outbox.sending import GRACE_S, send_all, send_now, write_by
from jobwire.protocol.normalize import ReadyPayload

__all__ = ["Outbox"]


class Outbox:
    """The outbox of a project, in the database to which Django routes writes of its table."""

    @property
    def alias(self) -> str:
        """Alias of its database."""
        alias: str = router.db_for_write(_model())
        return alias

    def add(self, jobs: Sequence[ReadyPayload], redis: str) -> list[Row]:
        """Insert jobs of a Redis, in the transaction of this thread.

        Raises:
            ConfigError: The Redis has no name.
        """
        check_redis(redis)
        alias, model, now = self.alias, _model(), timezone.now()
        rows = [
            model(
                jid=job.jid,
                queue=job.queue,
                at=job.at,
                redis=redis,
                payload=job.text,
                created_at=now,
            )
            for job in jobs
        ]
        if connections[alias].features.can_return_rows_from_bulk_insert:
            model.objects.using(alias).bulk_create(rows)
        else:
            for row in rows:
                row.save(using=alias, force_insert=True)
        return [Row(row.pk, job, redis) for row, job in zip(rows, jobs, strict=True)]

    def send_now(self, app: App, rows: Sequence[Row]) -> None:
        """Write the jobs of rows that this process has just committed; or leave them to a relay."""
        send_now(self, write_by(app), rows)

    def relay(self, app: App, *, grace: float = GRACE_S) -> int:
        """Write the jobs of rows that are `grace` seconds old; see `outbox.sending.send_all`."""
        return send_all(self, write_by(app), grace=grace)

    # -- the interface for `jobwire.outbox`

    def transaction(self) -> AbstractContextManager[object]:
        """Begin a transaction on the database."""
        block: AbstractContextManager[object] = transaction.atomic(using=self.alias)
        return block

    def delete(self, rows: Sequence[Row]) -> int:
        """Delete rows."""
        alias = self.alias
        found = _model().objects.using(alias).filter(pk__in=[row.key for row in rows])
        count: int = found._raw_delete(alias)  # asks for no related rows first
        return count

    def oldest(self, after: int, age: float, most: int, without: Collection[str]) -> list[Row]:
        """Return the oldest rows after a key."""
        until = timezone.now() - timedelta(seconds=age)
        found = _model().objects.using(self.alias).filter(pk__gt=after, created_at__lte=until)
        return [stored(row) for row in found.exclude(redis__in=without).order_by("pk")[:most]]

    def count(self) -> int:
        """Return the number of rows."""
        count: int = _model().objects.using(self.alias).count()
        return count

    def release(self) -> None:
        """Close the connections of this thread."""
        connections.close_all()


def _model() -> Any:
    from jobwire.django.outbox.models import OutboxJob  # needs the apps to be ready

    return OutboxJob
