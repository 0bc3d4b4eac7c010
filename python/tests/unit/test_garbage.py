"""The plugin that collects the garbage of each test."""

from __future__ import annotations

import pytest

pytest_plugins = "pytester"


def test_a_warning_fails_the_test_that_caused_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio, gc

        def test_leaves_a_loop_in_a_cycle():
            loop = asyncio.new_event_loop()
            loop.itself = loop

        def test_collects():
            gc.collect()
        """
    )
    options = ("-W", "error", "-p", "no:cacheprovider", "-p", "no:jobwire")
    without = pytester.runpytest_inprocess(*options)
    without.assert_outcomes(passed=1, failed=1)
    with_it = pytester.runpytest_inprocess(*options, "-p", "tests.garbage")
    with_it.assert_outcomes(passed=2, errors=1)
    with_it.stdout.fnmatch_lines(["ERROR *::test_leaves_a_loop_in_a_cycle*"])
