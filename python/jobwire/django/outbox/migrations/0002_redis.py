"""Add the name of the Redis of a job."""

from __future__ import annotations

from django.db import migrations, models

__all__ = ["Migration"]


class Migration(migrations.Migration):
    """A column; the rows that there are belong to the default Redis."""

    dependencies = (("jobwire_outbox", "0001_initial"),)
    operations = (
        migrations.AddField(
            model_name="outboxjob", name="redis", field=models.TextField(default="")
        ),
    )
