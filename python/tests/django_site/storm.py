"""Random transactions that are killed between commit and push; no job of a rolled back one.

    python -m tests.django_site.storm SEED TRANSACTIONS

Each transaction inserts rows and enqueues a job for each row, on one or two databases, with
savepoints and errors at random. The process writes the number of each transaction. With
JOBWIRE_STORM_KILL=N it kills itself right before it would write the Nth job to Redis, or right
after it if N is even. If the project has an outbox, all transactions are on its database.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import django

KILL = int(os.environ.get("JOBWIRE_STORM_KILL", "0"))


class Failure(Exception):
    """Rolls a block back."""


def main(seed: int, count: int) -> None:
    django.setup()
    from django.apps import apps
    from django.db import transaction

    from jobwire.application.client import Client
    from jobwire.protocol.normalize import ReadyPayload
    from tests.django_site.orders.jobs import pay
    from tests.django_site.orders.models import Order

    aliases = ["default"] if apps.is_installed("jobwire.django.outbox") else ["default", "other"]
    draw = random.Random(seed)
    tokens = itertools.count(seed * 1_000_000)  # a key would come again after a rollback
    pushes = 0
    write = Client.write

    def die_or_write(self: Client, jobs: Sequence[ReadyPayload], *, buffered: bool = True) -> None:
        nonlocal pushes
        pushes += 1
        if pushes == KILL and KILL % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, jobs, buffered=buffered)
        if pushes == KILL:
            os.kill(os.getpid(), signal.SIGKILL)

    Client.write = die_or_write  # type: ignore[method-assign]

    def block(depth: int) -> None:
        alias = draw.choice(aliases)
        with transaction.atomic(using=alias, savepoint=draw.random() < 0.8):
            for _ in range(draw.randrange(3)):
                token = next(tokens)
                if draw.random() < 0.5:  # both orders
                    Order.objects.using(alias).create(number=token)
                    pay.enqueue(token)
                else:
                    pay.enqueue(token)
                    Order.objects.using(alias).create(number=token)
            for _ in range(draw.randrange(3) if depth < 3 else 0):
                try:
                    block(depth + 1)
                except Failure:
                    if draw.random() < 0.3:
                        raise
            if draw.random() < 0.25:
                raise Failure

    for number in range(count):
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        # An inner block without a savepoint that has failed breaks its outer one.
        with suppress(Failure, transaction.TransactionManagementError):
            block(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
