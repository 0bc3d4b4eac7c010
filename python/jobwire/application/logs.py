"""The job in the log records of an application that formats its own log."""

from __future__ import annotations

import logging
from typing import Any

from jobwire.application.current import current_job
from jobwire.protocol.payload import Job

__all__ = ["JobFilter", "job_fields"]


class JobFilter(logging.Filter):
    """Adds the attributes `job_class`, `jid` and `queue` to log records, for `Formatter` and JSON.

        LOGGING = {
            "version": 1,
            "filters": {"job": {"()": "jobwire.JobFilter"}},
            "formatters": {"line": {"format": "%(levelname)s %(jid)s %(message)s"}},
            "handlers": {
                "console": {
                    "class": "logging.StreamHandler", "filters": ["job"], "formatter": "line"
                }
            },
            "root": {"handlers": ["console"], "level": "INFO"},
        }

    They are empty outside of a job. An attribute that the record has already is not changed.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes; every record passes."""
        for name, value in job_fields(current_job()).items():
            record.__dict__.setdefault(name, value)
        return True


def job_fields(job: Job | None) -> dict[str, Any]:
    """Return the attributes of a record about a job."""
    if job is None:
        return {"job_class": "", "jid": "", "queue": ""}
    return {"job_class": job.display_class, "jid": job.jid, "queue": job.queue}
