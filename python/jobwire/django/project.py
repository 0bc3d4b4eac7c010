"""The application of a Django project, made from its settings."""

from __future__ import annotations

from contextlib import suppress

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, reverse

from jobwire.application.app import App
from jobwire.django.bridge import BRIDGE
from jobwire.django.commit import OnCommit
from jobwire.django.conf import find_problems, read_settings
from jobwire.django.database import FreshConnections
from jobwire.django.outbox.outbox import Outbox
from jobwire.outbox.relay import Relay

__all__ = ["app", "page_url"]


def _make_app() -> App:
    for problem in find_problems():
        raise ImproperlyConfigured(f"{problem.text}. {problem.hint}")
    settings = read_settings()
    app = settings.make_app()
    app.entry = "jobwire.django.worker"  # sets Django up in the processes of isolated jobs
    app.transport.bridge = BRIDGE
    outbox = Outbox() if apps.is_installed("jobwire.django.outbox") else None
    if settings.on_commit:
        app.transport.deferral = OnCommit(app, outbox)
    if outbox is not None:
        Relay(lambda: outbox.relay(app.client), outbox.release).attach(app)
    connections = FreshConnections(app)
    app.wrap(outermost=True)(connections.around)
    app.wrap(connections.in_child)
    return app


def page_url() -> str | None:
    """Return the address of the web page, for the admin; None if there is none."""
    with suppress(NoReverseMatch):
        return read_settings().page or reverse("jobwire:page")
    return None


app = _make_app()
