"""The table of the outbox."""

from __future__ import annotations

from django.db import models

__all__ = ["OutboxJob"]


class OutboxJob(models.Model):
    """A job of a committed transaction, until it is written to Redis."""

    jid = models.TextField()
    queue = models.TextField()
    at = models.FloatField(null=True)  # epoch seconds of a scheduled job
    redis = models.TextField(default="")  # its name; "": the default of the project
    payload = models.BinaryField()
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.jid} in {self.queue}"
