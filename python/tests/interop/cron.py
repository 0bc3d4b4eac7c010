"""Real sidekiq-cron 1.8.0 with Sidekiq 6.4.1: only this Debian has both."""

from __future__ import annotations

import os

import pytest

from harness.chroots import CHROOTS, missing

__all__ = ["VERSION", "require_cron"]

VERSION = "6.4.1"
_PACKAGE = "usr/share/doc/ruby-sidekiq-cron"


def require_cron() -> None:
    """Skip the test if sidekiq-cron is not installed; fail if JOBWIRE_REQUIRE_INTEROP=1."""
    reason = missing(VERSION)
    if reason is None and not (CHROOTS / VERSION / _PACKAGE).exists():
        reason = "real sidekiq-cron is not installed: run `make interop`"
    if reason is None:
        return
    if os.environ.get("JOBWIRE_REQUIRE_INTEROP") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
