"""The entry of INSTALLED_APPS."""

from __future__ import annotations

from django.apps import AppConfig

__all__ = ["OutboxConfig"]


class OutboxConfig(AppConfig):
    """`jobwire.django.outbox` as an installed app."""

    name = "jobwire.django.outbox"
    label = "jobwire_outbox"
    verbose_name = "Jobs that wait for Redis"
    default_auto_field = "django.db.models.BigAutoField"
