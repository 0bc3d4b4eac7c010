"""The `jobwire` command.

Exit status: 0 done; 1 unexpected, or forced to stop; 2 wrong usage or an invalid job; 3 the
application cannot be loaded; 4 Redis cannot be used; 5 a push that may have been written.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

import click

import jobwire
from jobwire.cli.bench import bench
from jobwire.cli.config import config
from jobwire.cli.dev import dev
from jobwire.cli.enqueue import enqueue
from jobwire.cli.exits import AppNotLoaded, report
from jobwire.cli.inspect import inspect
from jobwire.cli.spec import spec
from jobwire.cli.validate import validate
from jobwire.cli.worker import worker
from jobwire.errors import JobwireError
from jobwire_conformance.cli import conform

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(jobwire.__version__, prog_name="jobwire")
def cli() -> None:
    """Client and worker for the Redis wire protocol that Sidekiq speaks.

    Redis is where --redis says, else JOBWIRE_REDIS_URL, the variable that REDIS_PROVIDER names,
    REDIS_URL, the file with the settings (see `jobwire config`), the server that `jobwire dev`
    runs in this directory, or redis://localhost:6379/0.

    Exit status: 0 done; 2 wrong usage or an invalid job; 3 the application cannot be loaded;
    4 Redis cannot be used; 5 a push that may have been written.
    """


cli.add_command(worker)
cli.add_command(config)
cli.add_command(enqueue)
cli.add_command(dev)
cli.add_command(inspect)
cli.add_command(spec)
cli.add_command(validate)
cli.add_command(bench)
cli.add_command(conform)


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        status = cli.main(standalone_mode=False, prog_name="jobwire")
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        status = error.exit_code
    except (click.ClickException, AppNotLoaded, JobwireError) as error:
        status = report(error)
    except (click.Abort, KeyboardInterrupt):
        status = 130
    _leave(status if isinstance(status, int) else 0)


def _leave(status: int) -> NoReturn:
    """Exit, also over the heads of threads whose jobs would not end. [SIG-5]

    Python's own way out waits for locks that such a thread may keep, and aborts when it writes
    to the log meanwhile.
    """
    if any(thread.name.startswith("jobwire-") for thread in threading.enumerate()):
        flush = threading.Thread(target=sys.stdout.flush, daemon=True)
        flush.start()
        flush.join(1.0)
        os._exit(status)
    sys.exit(status)
