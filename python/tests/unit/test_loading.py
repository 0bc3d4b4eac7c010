"""jobwire.cli.loading: the application that `MODULE:APP` names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from jobwire import App
from jobwire.cli.exits import AppNotLoaded
from jobwire.cli.loading import app_of, load_app, worker_app_of
from jobwire.errors import ConfigError
from jobwire.settings import resolve

GOOD = "import jobwire\napp = jobwire.App()\n"


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "target", ["shop_a:app", "shop_a", "shop_a.py:app", "shop_a.py", "./shop_a.py:app"]
)
def test_ways_to_name_it(target: str) -> None:
    """The module is in the current directory, which need not be on the import path."""
    Path("shop_a.py").write_text(GOOD)
    assert load_app(target) is sys.modules["shop_a"].app


def test_beside_a_directory_of_the_same_name() -> None:
    Path("shop_f").mkdir()
    Path("shop_f.py").write_text(GOOD)
    assert load_app("shop_f:app") is sys.modules["shop_f"].app


@pytest.mark.parametrize("name", ["logging", "colorsys", "jobwire"])
def test_a_file_does_not_replace_another_module(name: str) -> None:
    """Of the standard library, loaded before or not, or any that is loaded."""
    Path(f"{name}.py").write_text(GOOD)
    assert isinstance(load_app(f"{name}.py:app"), App)
    file = importlib.import_module(name).__file__
    assert file is not None
    assert Path(file).parent != Path.cwd()


def test_in_a_package() -> None:
    """The current directory comes first."""
    Path("pack_b").mkdir()
    Path("pack_b/__init__.py").write_text("")
    Path("pack_b/jobs.py").write_text("from pack_b.app import app\n")
    Path("pack_b/app.py").write_text(GOOD)
    assert load_app("pack_b.jobs:app") is sys.modules["pack_b.app"].app


@pytest.mark.parametrize(
    ("target", "text", "words"),
    [
        ("gone_c:app", None, "no module 'gone_c'"),
        ("gone_c.py:app", None, "no file 'gone_c.py'"),
        (".", None, "'.' is a directory, not a module"),
        ("", None, "no module is named"),
        (":app", None, "no module is named"),
        ("..x:app", None, "no module is named"),
        ("mod_c:app", "import gone_d", "mod_c.py:1: ModuleNotFoundError: No module named 'gone_d'"),
        ("mod_c:app", "x = 1\n1/0", "mod_c.py:2: ZeroDivisionError"),
        ("mod_c:app", "a b", "mod_c.py:1: SyntaxError"),
        ("mod_c:app", "raise SystemExit('no key')", "ended the program: no key"),
        ("mod_c:nope", GOOD, "has no 'nope'; applications in it: app"),
        ("mod_c:jobwire", GOOD, "is a module, not a jobwire.App"),
        ("mod_c", GOOD + "b = jobwire.App()", "2 applications (app and b)"),
        ("mod_c", "", "0 applications (none)"),
        ("mod_c.deeper:app", GOOD, "no module 'mod_c.deeper'"),
    ],
)
def test_what_is_wrong_is_said(target: str, text: str | None, words: str) -> None:
    """The message names the module, file or line, and the reason."""
    if text is not None:
        Path("mod_c.py").write_text(text)
    with pytest.raises(AppNotLoaded) as caught:
        load_app(target)
    assert words in str(caught.value)


def test_the_application_comes_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module also sees the chosen environment."""
    monkeypatch.setenv("JOBWIRE_ENV", "other")
    Path("shop_e.py").write_text(f"import os\n{GOOD}seen = os.environ['JOBWIRE_ENV']\n")
    Path("jobwire.toml").write_text("app = 'shop_e:app'\n")
    app = app_of(resolve({}, {}, Path.cwd(), environment="staging"))
    module = sys.modules["shop_e"]
    assert (app, module.seen) == (module.app, "staging")


def test_no_application_is_named() -> None:
    with pytest.raises(click.UsageError, match=r"MODULE:APP.* set app in jobwire.toml, or JOBWIRE"):
        app_of(resolve({}, {}, Path.cwd()))


JOB = "from {module} import app\n\n@app.job\ndef {name}():\n    pass\n"


def package(*files: str, app: str = GOOD) -> App:
    """Write `shop_p/app.py` and these files, each with a job, and load the application."""
    for number, file in enumerate(("shop_p/app.py", *files)):
        path = Path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(JOB.format(module="shop_p.app", name=f"job_{number}") if number else app)
    return load_app("shop_p.app:app")


def test_an_application_imports_the_modules_that_it_names() -> None:
    """The modules import the application, which is complete by then."""
    text = "import jobwire\napp = jobwire.App(imports=['shop_p.mail', 'shop_p.billing'])\n"
    app = package("shop_p/mail.py", "shop_p/billing.py", "shop_p/other.py", app=text)
    assert set(app.jobs) == {"job_1", "job_2"}
    assert app.jobs["job_1"].app is app


def test_an_application_finds_the_modules_called_jobs() -> None:
    """At any depth, with and without __init__.py, and all modules of a package called jobs."""
    found = ["shop_p/jobs.py", "shop_p/mail/jobs.py", "shop_p/mail/deep/jobs.py"]
    found += ["shop_p/a/jobs/__init__.py", "shop_p/a/jobs/one.py"]
    others = ["shop_p/mail/views.py", "shop_p/a/jobs/tests/one.py", "shop_p/no-name/jobs.py"]
    Path("shop_p/mail").mkdir(parents=True)
    Path("shop_p/mail/__init__.py").touch()
    app = package(*found, *others, app=GOOD + "app.autodiscover('shop_p')\n")
    assert set(app.jobs) == {f"job_{number}" for number in range(1, len(found) + 1)}
    app.load()  # a second time changes nothing
    assert app.job_modules() == [
        *("shop_p.jobs", "shop_p.a.jobs", "shop_p.a.jobs.one"),
        *("shop_p.mail.jobs", "shop_p.mail.deep.jobs"),
    ]


def test_other_names_of_modules_can_be_chosen() -> None:
    app = package("shop_p/x/tasks.py", app=GOOD + "app.autodiscover('shop_p', module='tasks')\n")
    assert set(app.jobs) == {"job_1"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("app.autodiscover('gone_p')", "no package 'gone_p' on the import path"),
        ("app.autodiscover('gone_p.deeper')", "no package 'gone_p.deeper'"),
        ("app.autodiscover('shop_p.app')", "is a module, not a package; write imports=['shop_p.ap"),
        ("app.imports.append('shop_p.gone')", "no module 'shop_p.gone'"),
        ("app.imports.append('shop_p.bad')", "bad.py:1: SyntaxError"),
        ("app = jobwire.App(imports='shop_p.x')", "is one string; write imports=['shop_p.x']"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(more: str, words: str) -> None:
    Path("shop_p").mkdir()
    Path("shop_p/bad.py").write_text("a b")
    with pytest.raises(AppNotLoaded) as caught:
        package(app=f"{GOOD}{more}\n")
    assert words in str(caught.value)
    with pytest.raises(ConfigError, match="is one string"):
        App(imports="shop_p.mail")


def test_a_worker_without_jobs_is_refused() -> None:
    """Every job would fail as an unknown one."""
    Path("shop_n.py").write_text(GOOD)
    settings = resolve({"app": "shop_n:app"}, {}, Path.cwd())
    assert app_of(settings).jobs == {}
    with pytest.raises(AppNotLoaded, match=r"'shop_n:app' defines no jobs; .*app.autodiscover"):
        worker_app_of(settings)
    app_of(settings).imports.append("json")
    with pytest.raises(AppNotLoaded, match="defines no jobs, and neither do json; "):
        worker_app_of(settings)


@pytest.mark.parametrize("first", ["from .mail import jobs", ""])
def test_a_path_of_a_module_that_others_import_by_name(first: str) -> None:
    """A relative import fails, and jobs of other modules would belong to another application."""
    Path("shop_j/mail").mkdir(parents=True)
    Path("shop_j/app.py").write_text(f"{GOOD}app.autodiscover('shop_j')\n{first}\n")
    Path("shop_j/mail/jobs.py").write_text("from shop_j.app import app\n@app.job\ndef j(): ...\n")
    with pytest.raises(AppNotLoaded, match=r"; write shop_j\.app:\w+ instead of the path$"):
        load_app("shop_j/app.py")
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop_j"]:
        del sys.modules[name]
    if not first:
        assert [*load_app("shop_j.app").jobs] == ["j"]


def test_a_refused_definition_is_named_by_its_own_line() -> None:
    Path("mod_k.py").write_text(f"{GOOD}\n@app.job(retry='x')\ndef j(): ...\n")
    with pytest.raises(AppNotLoaded, match=r"mod_k\.py:4: ConfigError: "):
        load_app("mod_k")
