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

from jobwire._version import __version__
from jobwire.cli.exits import AppNotLoaded, report
from jobwire.cli.groups import LazyGroup, Place, Plugin
from jobwire.errors import JobwireError

__all__ = ["main"]

_EVERYDAY = {
    "dev": Place("jobwire.cli.dev:dev", "Run an application with its own Valkey server."),
    "worker": Place("jobwire.cli.worker:worker", "Run the jobs of an application."),
    "enqueue": Place("jobwire.cli.enqueue:enqueue", "Push one job and print its id."),
    "inspect": Place("jobwire.cli.inspect:inspect", "Show and change queues, sets and processes."),
    "periodic": Place("jobwire.cli.periodic:periodic", "Show and change periodic jobs."),
    "web": Place("jobwire.cli.web:web", "Serve the page of queues, jobs and processes."),
    "top": Place("jobwire.cli.top:top", "Show queues, jobs and processes in the terminal."),
    "exporter": Place("jobwire.cli.exporter:exporter", "Serve the numbers of Redis to Prometheus."),
    "config": Place("jobwire.cli.config:config", "Show the settings that a worker would use."),
    "queues": Place("jobwire.cli.config:queues", "Show the queues of an application's jobs."),
    "new": Place("jobwire.cli.new:new", "Write a small application."),
    "completion": Place("jobwire.cli.completion:completion", "Complete words in your shell."),
}
_OPERATIONS = {
    "doctor": Place("jobwire.cli.operations:doctor", "Find problems of a Redis and its processes."),
    "detect": Place("jobwire.cli.detect:detect", "Find the products that write into a Redis."),
    "explain": Place("jobwire.cli.operations:explain", "Say why a job does not run now."),
    "groups": Place("jobwire.cli.operations:groups", "Show failures, grouped by their cause."),
    "journal": Place("jobwire.cli.operations:journal", "Show the changes that people made."),
    "shards": Place("jobwire.cli.shards:shards", "Show, add, drain and remove shards."),
    "undo": Place("jobwire.cli.operations:undo", "Put deleted jobs back."),
}
_NO_SUITE = "this command needs the conformance suite: pip install 'jobwire[conformance]'"
_PROTOCOL = {
    "spec": Plugin(_NO_SUITE, "Read the specification."),
    "validate": Plugin(_NO_SUITE, "Check a payload against the specification."),
    "conform": Plugin(_NO_SUITE, "Check an implementation of the protocol."),
    "bench": Place("jobwire.cli.bench:bench", "Measure the speed of your Redis and machine."),
}


@click.group(
    cls=LazyGroup,
    sections={
        "Commands": _EVERYDAY,
        "Commands for operators": _OPERATIONS,
        "Commands for the protocol": _PROTOCOL,
    },
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="jobwire")
def cli() -> None:
    """Background jobs for Python over Redis: a worker, a client, tools.

    The URL of Redis comes from the first of these that is set: --redis, the application that
    --require, JOBWIRE_APP or the settings file names, JOBWIRE_REDIS_URL, the variable that
    REDIS_PROVIDER names, REDIS_URL, the settings file (see `jobwire config`), the server that
    `jobwire dev` runs in this directory. The default is redis://localhost:6379/0. The namespace is
    that of --namespace, or of the application.

    Exit status: 0 done; 1 a named item does not exist, or the doctor found an error; 2 wrong usage
    or an invalid job; 3 the application cannot be loaded; 4 Redis cannot be used; 5 a push that may
    have been written. `jobwire conform` has its own; see `jobwire conform --help`.
    """


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
    """Exit, even if threads still run jobs that do not end. [SIG-5]

    Python's normal exit would wait for locks that such a thread may hold, and would abort if the
    thread writes to the log in the meantime.
    """
    if any(thread.name.startswith("jobwire-") for thread in threading.enumerate()):
        flush = threading.Thread(target=sys.stdout.flush, daemon=True)
        flush.start()
        flush.join(1.0)
        os._exit(status)
    sys.exit(status)
