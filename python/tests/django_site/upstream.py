"""Run Django's own tests of its built-in task backends on that of jobwire.

    DJANGO_TESTS=django-6.1.3/tests python -m tests.django_site.upstream

The sources of Django have these tests. Here the name of the backend is replaced in them. Redis and
workers are real, but for the one test of Ctrl-C in the caller's thread.
"""

from __future__ import annotations

import os
import sys
import unittest
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

import django
from django.test.runner import DiscoverRunner

DUMMY = "django.tasks.backends.dummy"
IMMEDIATE = "django.tasks.backends.immediate"
OURS = "tests.django_site.collecting"
CHANGES = {
    f"{DUMMY}.DummyBackend": f"{OURS}.Collecting",
    f"from {DUMMY} import DummyBackend": f"from {OURS} import Collecting as DummyBackend",
    f"{IMMEDIATE}.ImmediateBackend": f"{OURS}.Immediate",
    f"from {IMMEDIATE} import Immediate": f"from {OURS} import Immediate as Immediate",
    # The dummy backend runs no task, so its tests change what it has stored.
    "enqueued_result = default_task_backend.results[0]": "default_task_backend.run()",
    'object.__setattr__(enqueued_result, "status", TaskResultStatus.SUCCESSFUL)': "",
}
FILES = (
    *("test_dummy_backend.py", "test_tasks.py"),
    *("test_custom_backend.py", "test_immediate_backend.py"),
)
# The immediate backend runs a task in the thread of the caller, so Ctrl-C there ends both. Of ours
# that is what `testing.inline` does: a worker runs tasks in threads of its own, which no Ctrl-C
# reaches.
IN_THIS_THREAD = "test_throws_keyboard_interrupt"


def load(name: str, source: str) -> ModuleType:
    """Return a test module of Django's package `tasks`, with our backend in it."""
    for old, new in CHANGES.items():
        source = source.replace(old, new)
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
    app.defaults["retry"] = 0  # the immediate backend makes one attempt
    suite = unittest.TestSuite()
    for file in FILES:
        module = load(Path(file).stem, (directory / "tasks" / file).read_text("utf-8"))
        for case in vars(module).values():
            if IN_THIS_THREAD in getattr(case, "__dict__", {}):
                test = testing.inline(app)(getattr(case, IN_THIS_THREAD))
                setattr(case, IN_THIS_THREAD, test)
        suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(module))
    runner = DiscoverRunner(verbosity=1)
    runner.setup_test_environment()
    databases = runner.setup_databases()
    with testing.server() as server:
        app.connect(server.url)
        result = runner.run_suite(suite)
        app.close()
    runner.teardown_databases(databases)
    sys.stdout.write(f"ran {result.testsRun} tests of Django {django.__version__}\n")
    return 0 if result.wasSuccessful() and result.testsRun >= 60 else 1


if __name__ == "__main__":
    sys.exit(main())
