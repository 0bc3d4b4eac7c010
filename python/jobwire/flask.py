"""jobwire in Flask: settings, an app context around each job, and `flask jobwire ...`.

jobs = Jobs(app)          # a jobwire.App
jobs.init_app(web)        # a flask.Flask
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager

import click
from flask import Flask

from jobwire.application.app import App
from jobwire.errors import ConfigError
from jobwire.protocol.payload import Job

__all__ = ["Jobs"]


class Jobs:
    """The extension. Each job runs in an app context, also outside its middleware.

    `JOBWIRE_REDIS_URL` in Flask's configuration is the URL of Redis.

    Args:
        app: The application with the jobs.
        flask: The Flask application; None to call `init_app` later.
    """

    def __init__(self, app: App, flask: Flask | None = None) -> None:
        self.app = app
        self._flask: Flask | None = None
        app.wrap(outermost=True)(self._context)
        if flask is not None:
            self.init_app(flask)

    def init_app(self, flask: Flask) -> None:
        """Connect a Flask application; the last one gives the context of jobs."""
        flask.extensions["jobwire"] = self
        self._flask = flask
        if url := flask.config.get("JOBWIRE_REDIS_URL"):
            self.app.connect(url)
        flask.cli.add_command(
            click.Command(
                "jobwire",
                callback=self._run,
                params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
                context_settings={"ignore_unknown_options": True},
                add_help_option=False,  # that of `jobwire` appears
                short_help="Run the command jobwire with the application of this project.",
            )
        )

    def _context(self, job: Job) -> AbstractContextManager[object]:
        if self._flask is None:
            raise ConfigError(
                "jobwire.flask: no Flask application; start the worker with `flask jobwire worker`"
            )
        return self._flask.app_context()

    def _run(self, words: tuple[str, ...]) -> None:
        from jobwire.cli import main

        os.environ.setdefault("JOBWIRE_APP", next(self._names(), ""))
        sys.argv = ["jobwire", *words]
        main()

    def _names(self) -> Iterator[str]:
        """Yield each `MODULE:NAME` of the application."""
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if value is self.app:
                    yield f"{module.__name__}:{name}"
