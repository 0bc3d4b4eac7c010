"""A traced application with an isolated job, for tests."""

from __future__ import annotations

import json
from pathlib import Path

from opentelemetry import propagate

from jobwire import App, otel

app = App()


@app.job(name="Look", isolated=True, retry=False)
def look(path: str) -> None:
    """Write the context that a push would carry on."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    Path(path).write_text(json.dumps(carrier))


otel.instrument(app)
