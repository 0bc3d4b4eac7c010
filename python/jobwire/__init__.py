"""Client and worker for the Redis wire protocol that Sidekiq speaks."""

from jobwire.aio import AsyncClient
from jobwire.app import App
from jobwire.client import Client
from jobwire.current import current_job
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
from jobwire.jobtype import JobType
from jobwire.payload import Job

__all__ = [
    "App",
    "AsyncClient",
    "Client",
    "ConfigError",
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
