"""An application that reports to Sentry, with a transport that writes to a file here."""

from __future__ import annotations

import logging
from pathlib import Path

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from jobwire import App
from jobwire.sentry import instrument


class FileTransport(Transport):
    def capture_envelope(self, envelope: Envelope) -> None:
        with Path("envelopes").open("ab") as file:
            for item in envelope.items:
                file.write(item.get_bytes() + b"\n")


sentry_sdk.init(dsn="http://key@localhost/1", transport=FileTransport, traces_sample_rate=1.0)
app = App()
instrument(app)


@app.job(name="Divide", retry=3)
def divide(a: int, b: int) -> None:
    show.enqueue(a / b)


@app.job(name="Show")
def show(result: float) -> None:
    logging.getLogger("shop").info("the result is %g", result)
