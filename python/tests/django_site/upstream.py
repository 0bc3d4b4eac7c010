"""Run Django's own tests of its built-in task backends on that of jobwire.

    DJANGO_TESTS=django-6.1.3/tests python -m tests.django_site.upstream

The sources of Django have these tests. Here the name of the backend is replaced in them, and jobs
are collected. A test that reads a result back is left out, because the backend cannot do that.
"""

from __future__ import annotations

import os
import sys
import unittest
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import django
from django.test.runner import DiscoverRunner

FILES = ("test_dummy_backend.py", "test_tasks.py", "test_custom_backend.py")
DUMMY = "django.tasks.backends.dummy"
# They read a result, or the list of results that only the dummy backend has.
READS_RESULTS = (
    *("get_result", "refresh_result", "get_missing_result", "test_clear", "get_incorrect_result"),
)


def load(name: str, source: str) -> ModuleType:
    """Return a test module of Django's package `tasks`, with our backend in it."""
    source = source.replace(f"{DUMMY}.DummyBackend", "tests.django_site.collecting.Collecting")
    source = source.replace(
        f"from {DUMMY} import DummyBackend",
        "from tests.django_site.collecting import Collecting as DummyBackend",
    )
    module = module_from_spec(ModuleSpec(f"tasks.{name}", None))
    sys.modules[module.__name__] = module
    exec(compile(source, name, "exec"), vars(module))
    return module


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django_site.settings")
    directory = Path(os.environ["DJANGO_TESTS"])
    sys.path.insert(0, str(directory))
    django.setup()
    from jobwire import testing
    from jobwire.django import app

    app.server_middleware.clear()
    suite = unittest.TestSuite()
    left_out: list[str] = []
    for file in FILES:
        module = load(Path(file).stem, (directory / "tasks" / file).read_text("utf-8"))
        for case in unittest.defaultTestLoader.loadTestsFromModule(module):
            tests: Any = case
            for test in tests:
                if any(words in test.id() for words in READS_RESULTS):
                    left_out.append(test.id())
                else:
                    suite.addTest(test)
    for name in left_out:
        sys.stdout.write(f"left out: {name}\n")
    runner = DiscoverRunner(verbosity=1)
    runner.setup_test_environment()
    databases = runner.setup_databases()
    with testing.fake(app):
        result = runner.run_suite(suite)
    runner.teardown_databases(databases)
    sys.stdout.write(
        f"ran {result.testsRun} tests of Django {django.__version__}, left out {len(left_out)}\n"
    )
    return 0 if result.wasSuccessful() and result.testsRun >= 30 else 1


if __name__ == "__main__":
    sys.exit(main())
