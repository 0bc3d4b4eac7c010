"""Client and worker for the Redis wire protocol that Sidekiq speaks."""

from jobwire.application.aio import AsyncClient
from jobwire.application.app import App
from jobwire.application.client import Client
from jobwire.application.current import current_job
from jobwire.application.jobtype import JobType
from jobwire.errors import (
    ConfigError,
    InvalidJob,
    JobwireError,
    MaybeWritten,
    RedisRefused,
    RedisTrouble,
    RedisUnreachable,
    Shutdown,
    TryAgain,
)
from jobwire.protocol.iteration import Cursor
from jobwire.protocol.payload import Job

__all__ = [
    "App",
    "AsyncClient",
    "Client",
    "ConfigError",
    "Cursor",
    "InvalidJob",
    "Job",
    "JobType",
    "JobwireError",
    "MaybeWritten",
    "RedisRefused",
    "RedisTrouble",
    "RedisUnreachable",
    "Shutdown",
    "TryAgain",
    "current_job",
]

__version__ = "0.1.0"
