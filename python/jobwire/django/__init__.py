"""jobwire in a Django project; see docs/how-to/django.md.

    INSTALLED_APPS = ["jobwire.django", ...]
    JOBWIRE = {"URL": "redis://redis.example.org:6379/0"}  # optional; `jobwire dev` has a server

The application `app` is made from the settings at its first use. Each `jobs.py` of an installed
app is imported when Django starts. A job that is enqueued inside `transaction.atomic` is written
to Redis after the commit, and never after a rollback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobwire.application.app import App

    app: App

__all__ = ["app"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name != "app":
            raise AttributeError(f"module 'jobwire.django' has no attribute {name!r}")
        from jobwire.django.project import app

        return app
