"""System checks: `manage.py check` reports mistakes of the setting JOBWIRE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.core import checks

from jobwire.django.conf import find_problems, read_settings

__all__ = ["check_settings"]


def check_settings(app_configs: object = None, **kwargs: object) -> list[Any]:
    """Return the messages of the checks `jobwire.E001` to `jobwire.E004`, and the warnings."""
    errors = [
        checks.Error(problem.text, hint=problem.hint, id=f"jobwire.{problem.identifier}")
        for problem in find_problems()
    ]
    return errors or [*_warnings()]


def _warnings() -> Iterator[Any]:
    names = [config.name for config in apps.get_app_configs()]
    admin = "django.contrib.admin"
    if (
        read_settings().page
        and admin in names
        and names.index("jobwire.django") > names.index(admin)
    ):
        yield checks.Warning(
            "the admin shows no link to the page of jobs, because it comes first",
            hint=f"Put 'jobwire.django' before {admin!r} in INSTALLED_APPS.",
            id="jobwire.W001",
        )
