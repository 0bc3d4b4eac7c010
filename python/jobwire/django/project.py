"""The application of a Django project, made from its settings."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import FrameType

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import NoReverseMatch, reverse

from jobwire.application.aio import AsyncClient
from jobwire.application.app import App
from jobwire.application.client import Client
from jobwire.django.bridge import BRIDGE
from jobwire.django.commit import OnCommit
from jobwire.django.conf import find_problems, read_settings
from jobwire.django.database import FreshConnections
from jobwire.django.outbox.outbox import Outbox
from jobwire.outbox.relay import Relay

__all__ = ["app", "page_url", "refuse_mistakes"]


class _Unconfigured(App):
    """Stands in while JOBWIRE has a mistake, so that the system checks can run and report it."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self._mistake = mistake

    @property
    def client(self) -> Client:
        """Raise: a job would go to another server than the one that was meant."""
        raise ImproperlyConfigured(self._mistake)

    @property
    def aclient(self) -> AsyncClient:
        """Raise; see `client`."""
        raise ImproperlyConfigured(self._mistake)


def refuse_mistakes() -> None:
    """Raise the first mistake of the setting JOBWIRE.

    Raises:
        ImproperlyConfigured: There is one.
    """
    for problem in find_problems():
        raise ImproperlyConfigured(f"{problem.text}. {problem.hint}")


def _make_app() -> App:
    try:
        refuse_mistakes()
    except ImproperlyConfigured as error:
        if not _in_command():
            raise
        return _Unconfigured(str(error))
    settings = read_settings()
    app = settings.make_app()
    app.entry = "jobwire.django.worker"  # sets Django up in the processes of isolated jobs
    app.transport.bridge = BRIDGE
    outbox = Outbox() if apps.is_installed("jobwire.django.outbox") else None
    if settings.on_commit:
        app.transport.deferral = OnCommit(app, outbox)
    if outbox is not None:
        Relay(lambda: outbox.relay(app), outbox.release).attach(app)
    connections = FreshConnections(app)
    app.wrap(outermost=True)(connections.around)
    app.wrap(connections.in_child)
    return app


def _in_command() -> bool:
    """True if a command of manage.py runs this: it runs the checks before it does its work."""
    frame: FrameType | None = sys._getframe()
    while frame and not str(frame.f_globals.get("__name__")).startswith("django.core.management"):
        frame = frame.f_back
    return frame is not None


def page_url() -> str | None:
    """Return the address of the web page, for the admin; None if there is none."""
    with suppress(NoReverseMatch):
        return read_settings().page or reverse("jobwire:page")
    return None


app = _make_app()
