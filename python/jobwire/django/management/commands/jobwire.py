"""`manage.py jobwire ...`: the command `jobwire` with the application of the project."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

__all__ = ["Command"]

APP = "jobwire.django.worker:app"
_RUNS_JOBS = ("dev", "worker")


class Command(BaseCommand):
    """Passes its arguments to the command `jobwire`, unread."""

    help = "Run the command jobwire with the application of this project: worker, dev, inspect..."

    def run_from_argv(self, argv: list[str]) -> None:
        """Run `jobwire` with the words after `manage.py jobwire`."""
        django_options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        django_options.add_argument("--settings")
        django_options.add_argument("--pythonpath")
        _, words = django_options.parse_known_args(argv[2:])
        try:
            self._run(words)
        except CommandError as error:  # of the checks
            self.stderr.write(str(error), lambda text: text)
            sys.exit(error.returncode)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run `jobwire`, for `call_command("jobwire", "inspect", "stats")`."""
        self._run(list(args))

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take the words of `jobwire`, for `call_command`."""
        parser.add_argument("args", nargs=argparse.REMAINDER)

    def _run(self, words: list[str]) -> None:
        from jobwire.cli import main

        if words[:1] and words[0] in _RUNS_JOBS and "--help" not in words:
            self.check()
        os.environ.setdefault("JOBWIRE_APP", APP)
        sys.argv = ["jobwire", *words]
        main()
