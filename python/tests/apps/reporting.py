"""examples/sentry_app.py with a transport that writes to a file of the working directory."""

from __future__ import annotations

import sys
from pathlib import Path

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

sys.path.append(str(Path(__file__).resolve().parents[3]))
from examples.sentry_app import app

__all__ = ["app"]


class FileTransport(Transport):
    def capture_envelope(self, envelope: Envelope) -> None:
        with Path("envelopes").open("ab") as file:
            for item in envelope.items:
                file.write(item.get_bytes() + b"\n")


sentry_sdk.init(dsn="http://key@localhost/1", transport=FileTransport, traces_sample_rate=1.0)
