"""Import of the application that `MODULE:APP` names."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from jobwire._version import DIRECTORY
from jobwire.application.app import App
from jobwire.cli.exits import AppNotLoaded
from jobwire.settings import Settings

__all__ = ["app_of", "load_app", "other_apps", "worker_app_of"]

_PACKAGE = Path(DIRECTORY)


def app_of(settings: Settings) -> App:
    """Import and return the application that the settings name.

    JOBWIRE_ENV holds the name from --environment while the module is imported.

    Raises:
        AppNotLoaded: The application cannot be imported.
        click.UsageError: The settings name no application.
    """
    if not settings["app"]:
        raise click.UsageError(
            "no application is named: give MODULE:APP, like shop.jobs:app, or set app in "
            f"{settings.file.value or 'jobwire.toml'}, or JOBWIRE_APP"
        )
    if settings.environment.giver == "flag":
        os.environ["JOBWIRE_ENV"] = settings.environment.value
    return load_app(settings["app"])


def worker_app_of(settings: Settings) -> App:
    """Import and return the application that the settings name, for a worker.

    Raises:
        AppNotLoaded: Also if the application has no jobs, because each job would fail.
        click.UsageError: The settings name no application.
    """
    app = app_of(settings)
    if not app.jobs:
        also = f", and neither do {', '.join(modules)}" if (modules := app.job_modules()) else ""
        owners = [
            f"; {name} defines {', '.join([*other.jobs][:3])}"
            for name, other in other_apps(app)
            if other.jobs
        ]
        raise AppNotLoaded(
            f"{settings['app']!r} defines no jobs{also}{''.join(owners[:1])}; "
            "name the modules with jobs: "
            "App(imports=['shop.mail']) or app.autodiscover('shop')"
        )
    return app


def other_apps(app: App) -> Iterator[tuple[str, App]]:
    """Yield the other applications of the modules that are imported, and `MODULE:NAME` of each."""
    seen = {id(app)}
    for module in list(sys.modules.values()):
        for name, other in list(getattr(module, "__dict__", {}).items()):
            if isinstance(other, App) and id(other) not in seen:
                seen.add(id(other))
                yield f"{module.__name__}:{name}", other


def load_app(target: str) -> App:
    """Import and return the application that `target` names, and the modules with its jobs.

    Args:
        target: `MODULE:APP` or `path/to/file.py:APP`. Without `:APP`, it is the only application
            of the module. The current directory comes first on the import path.

    Raises:
        AppNotLoaded: The text tells the name, the place and the cause.
    """
    place, _, name = target.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = _import(place)
    if not name:
        apps = _apps(module)
        if len(apps) != 1:
            names = " and ".join(apps) or "none"
            raise AppNotLoaded(
                f"{place!r} has {len(apps)} applications ({names}); name one: {place}:NAME"
            )
        name = apps[0]
    if not hasattr(module, name):
        known = ", ".join(_apps(module)) or "none"
        raise AppNotLoaded(f"{place!r} has no {name!r}; applications in it: {known}")
    app = getattr(module, name)
    if not isinstance(app, App):
        raise AppNotLoaded(
            f"{target!r} is a {type(app).__name__}, not a jobwire.App; name the application object"
        )
    app.entry = module.__name__
    try:
        modules = app.job_modules()
    except Exception as error:  # may import parents of packages, which is the user's code
        raise AppNotLoaded(f"{target!r}: {error}") from error
    for job_module in modules:
        _import(job_module)
    if place.endswith(".py"):
        _refuse_second_copy(module, name, app)
    return app


def _import(place: str) -> ModuleType:
    if (place.startswith(".") or os.sep in place) and Path(place).is_dir():
        raise AppNotLoaded(
            f"{place!r} is a directory, not a module; write MODULE:APP, like shop.jobs:app, and "
            "start in the directory that contains 'shop'"
        )
    if not place or (place.startswith(".") and not place.endswith(".py")):
        raise AppNotLoaded("no module is named; write MODULE:APP, like shop.jobs:app")
    try:
        return _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(error.name + ".")):
            raise AppNotLoaded(
                f"no module {error.name!r} in {os.getcwd()} or on the import path; "
                "start in your project's directory, or set PYTHONPATH"
            ) from None
        raise _failed(place, error) from error
    except AppNotLoaded:
        raise
    except SystemExit as error:
        raise AppNotLoaded(
            f"importing {place!r} ended the program: {error}; a module must only define jobs"
        ) from error
    except Exception as error:  # importing runs the user's code
        raise _failed(place, error) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise AppNotLoaded(f"no file {str(path)!r} in {os.getcwd()}")
    name = f"jobwire_app_{path.stem}" if _is_taken(path) else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppNotLoaded(f"{str(path)!r} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _refuse_second_copy(module: ModuleType, name: str, app: App) -> None:
    """Raise if other modules import the file by its dotted name, and put their jobs there."""
    path = Path(module.__file__ or "").resolve()
    for dotted, other in list(sys.modules.items()):
        names: dict[str, Any] = {} if other is module else getattr(other, "__dict__", {})
        copy, file = names.get(name), names.get("__file__")
        if not isinstance(copy, App) or not file or Path(file).resolve() != path:
            continue
        if copy.jobs.keys() - app.jobs.keys():
            raise AppNotLoaded(
                f"{module.__file__!r} is imported twice, because other modules import "
                f"{dotted!r}; write {dotted}:{name} instead of the path"
            )


def _is_taken(path: Path) -> bool:
    """True if another module has the name of this file, which must not replace it."""
    name = path.stem
    if name in sys.stdlib_module_names:
        # Other code may import that module later, and would find the file instead.
        search, sys.path = sys.path, [entry for entry in sys.path if entry not in ("", os.getcwd())]
        try:
            importlib.import_module(name)
        except ImportError:
            pass  # not on this system
        finally:
            sys.path = search
        return True
    file = getattr(sys.modules.get(name), "__file__", "") if name in sys.modules else path
    return not file or Path(file).resolve() != path.resolve()


def _failed(place: str, error: Exception) -> AppNotLoaded:
    frames = traceback.extract_tb(error.__traceback__)
    # A definition that jobwire refuses is named, not the line of jobwire that refuses it.
    theirs = [
        frame
        for frame in frames
        if not Path(frame.filename).is_relative_to(_PACKAGE)
        and not frame.filename.startswith(("<frozen importlib", importlib.__path__[0]))
    ]
    position = f" at {theirs[-1].filename}:{theirs[-1].lineno}" if theirs else ""
    if isinstance(error, SyntaxError):
        position = f" at {error.filename}:{error.lineno}"
    path = Path(place)
    advice = ""
    if "no known parent package" in str(error) and path.suffix and not path.is_absolute():
        dotted = ".".join(path.with_suffix("").parts)
        advice = f"; write {dotted}:APP instead of the path"
    return AppNotLoaded(
        f"importing {place!r} failed{position}: {type(error).__name__}: {error}{advice}"
    )


def _apps(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, App)]
