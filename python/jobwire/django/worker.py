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
    # They need the settings, so they come after the setup.
    from jobwire.django.project import app, refuse_mistakes

    refuse_mistakes()
    return app


app: App = _find_app()
