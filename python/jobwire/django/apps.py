"""The entry of INSTALLED_APPS: imports the jobs of all apps and registers the checks."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.utils.module_loading import autodiscover_modules

from jobwire.django.checks import check_settings

__all__ = ["JobwireConfig"]


class JobwireConfig(AppConfig):
    """`jobwire.django` as an installed app."""

    name = "jobwire.django"
    label = "jobwire"
    verbose_name = "Jobs"

    def ready(self) -> None:
        """Import `jobs.py` of each installed app, and `tasks.py` if jobwire runs Django's tasks."""
        checks.register(check_settings)
        autodiscover_modules("jobs")
        backends = getattr(settings, "TASKS", {}).values()
        if any("jobwire.django" in str(backend.get("BACKEND")) for backend in backends):
            autodiscover_modules("tasks")
