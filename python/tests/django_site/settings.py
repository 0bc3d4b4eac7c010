"""Settings: two databases, SQLite or PostgreSQL, in the directory that DATABASE_DIR names."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import django

DIRECTORY = os.environ.get("DATABASE_DIR") or tempfile.gettempdir()
POSTGRES = os.environ.get("POSTGRES_SOCKET")
IN_TEST = bool(os.environ.get("TEST_DATABASES"))  # for processes that a test starts


def database(name: str) -> dict[str, Any]:
    """Return the settings of a database; a worker's threads need a file, not memory."""
    if POSTGRES:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "HOST": POSTGRES,
            "USER": "postgres",
            "NAME": f"test_{name}" if IN_TEST else name,
            "CONN_MAX_AGE": None,
            "ATOMIC_REQUESTS": name == "first",
            "CONN_HEALTH_CHECKS": True,
        }
    path = os.path.join(DIRECTORY, f"{name}.sqlite3")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": f"{path}.test" if IN_TEST else path,
        "TEST": {"NAME": f"{path}.test"},
        "OPTIONS": {"timeout": 30},
        "ATOMIC_REQUESTS": name == "first",
    }


SECRET_KEY = "only for tests"
DEBUG = True
USE_TZ = True
DATABASES = {"default": database("first"), "other": database("second")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "jobwire.django",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "tests.django_site.orders",
]
if os.environ.get("OUTBOX"):
    INSTALLED_APPS.append("jobwire.django.outbox")
MIDDLEWARE = [
    "django.middleware.common.CommonMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.django_site.urls"
STATIC_URL = "static/"
if django.VERSION < (6, 0):
    INSTALLED_APPS.append("django_tasks")
TASKS = {
    "default": {
        "BACKEND": "jobwire.django.tasks.JobwireBackend",
        "QUEUES": [],
        "OPTIONS": {"priority_queues": {10: "urgent", -10: "low"}, "keep_result": 600},
    },
    "careful": {
        "BACKEND": "jobwire.django.tasks.JobwireBackend",
        "QUEUES": ["default"],
        "OPTIONS": {"on_commit": True},
    },
}
JOBWIRE = {
    "PAGE": "/background/",
    "SERVER_MIDDLEWARE": ["tests.django_site.orders.middleware.querying"],
    "OPTIONS": {"retry": 3},
    "REDIS": {"mail": os.environ.get("MAIL_REDIS_URL", "redis://127.0.0.1:1/1")},
}
