"""Create the table of the outbox."""

from __future__ import annotations

from django.db import migrations, models

__all__ = ["Migration"]


class Migration(migrations.Migration):
    """The first version of the table."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="OutboxJob",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        primary_key=True, serialize=False, auto_created=True, verbose_name="ID"
                    ),
                ),
                ("jid", models.TextField()),
                ("queue", models.TextField()),
                ("at", models.FloatField(null=True)),
                ("payload", models.BinaryField()),
                ("created_at", models.DateTimeField()),
            ],
        ),
    )
