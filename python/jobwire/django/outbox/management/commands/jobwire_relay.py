"""`manage.py jobwire_relay`: write the jobs of the outbox, where no worker of the project does."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from jobwire.django.outbox.outbox import Outbox
from jobwire.django.project import app
from jobwire.errors import RedisTrouble
from jobwire.outbox.relay import Relay

__all__ = ["Command"]


class Command(BaseCommand):
    """Writes jobs until SIGTERM or SIGINT, or once."""

    help = (
        "Write the jobs that wait in the outbox. Workers of the project do the same, so this "
        "command is for a project whose workers are all in other languages."
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Take `--once`."""
        parser.add_argument(
            "--once", action="store_true", help="write all jobs that wait now, and end"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the relay."""
        outbox = Outbox()
        if not options["once"]:
            Relay(lambda: outbox.relay(app), outbox.release).serve()
            return
        try:
            sent = outbox.relay(app, grace=0)
        except RedisTrouble as error:
            raise CommandError(f"{error}; the jobs stay in the outbox") from None
        self.stdout.write(f"{sent} written, {outbox.count()} left")
