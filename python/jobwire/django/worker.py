"""The application for a process that Django has not started: `jobwire worker` and its children.

`manage.py jobwire worker` names it by itself. Without manage.py:

    DJANGO_SETTINGS_MODULE=shop.settings jobwire worker jobwire.django.worker:app
"""

from __future__ import annotations

import django

from jobwire.application.app import App

__all__ = ["app"]

django.setup()


def _find_app() -> App:
    from jobwire.django.project import app  # needs the settings, so it comes after the setup

    return app


app: App = _find_app()
