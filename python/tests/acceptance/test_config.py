"""Settings from files, from the view of a user: `jobwire config`, and `jobwire worker` alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire.settings import SETTINGS
from tests.workers import Workers, environment, jobwire

TOML = """\
app = "shop:app"
redis = "redis://me:${SHOP_PASSWORD:-secret}@somewhere/0"
queues = ["critical,3", "low"]
concurrency = 2
tag = "[red]shop"

[capsules.mail]
queues = ["mail"]
concurrency = 1

[production]
concurrency = 20
"""


SHOP = """
import jobwire

app = jobwire.App()

@app.job(queue="reports")
def report():
    pass
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "jobwire.toml").write_text(TOML)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def lines(text: str) -> dict[str, list[str]]:
    """Return the words of a table, by setting."""
    rows = (line.split() for line in text.splitlines())
    return {name: words for name, *words in rows}


def test_config_says_what_counts_and_why(shop: Path) -> None:
    """SEC-2: and passwords are hidden."""
    ended = jobwire("config", "-t", "4", cwd=shop, APP_ENV="production", JOBWIRE_LABELS="a b")
    assert (ended.returncode, ended.stderr) == (0, "")
    shown = lines(ended.stdout)
    assert [*SETTINGS] == [name for name in shown if name in SETTINGS]
    for name, words in {
        "environment": "production APP_ENV",
        "file": "jobwire.toml found in the working directory",
        "app": "shop:app jobwire.toml:1",
        "redis": "redis://me:***@somewhere/0 jobwire.toml:2",
        "queues": "critical,3 low jobwire.toml:3",
        "concurrency": "20 jobwire.toml:12 [production]",
        "capsules": "mail=1 mail jobwire.toml:7",
        "tag": "[red]shop jobwire.toml:5",
        "labels": "a b JOBWIRE_LABELS",
        "timeout": "4 --timeout",
        "poll_interval": "by fleet size default",
    }.items():
        assert " ".join(shown[name]) == words


def test_config_as_json(shop: Path) -> None:
    """SEC-2: for programs, with values as JSON types."""
    ended = jobwire("config", "--json", cwd=shop)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = json.loads(ended.stdout)
    assert found["file"]["value"] == "jobwire.toml"
    settings = found["settings"]
    assert [*settings] == [*SETTINGS]
    assert settings["concurrency"] == {"value": 2, "source": "jobwire.toml:4"}
    assert settings["capsules"]["value"] == {"mail": {"queues": {"mail": 0}, "concurrency": 1}}
    assert settings["queues"]["value"] == {"critical": 3, "low": 0}
    assert settings["poll_interval"] == {"value": None, "source": "default"}
    assert "secret" not in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "environ", "status", "words"),
    [
        ([], {"JOBWIRE_TIMEOUT": "soon"}, 2, "JOBWIRE_TIMEOUT: timeout: 'soon'"),
        (["-C", "typo.yml"], {}, 2, "typo.yml:1: concurency: no such setting; did you mean conc"),
        (["-C", "jobwire.toml", "shop:nope"], {}, 3, "'shop' has no 'nope'"),
    ],
)
def test_what_the_worker_refuses_config_refuses(
    shop: Path, arguments: list[str], environ: dict[str, str], status: int, words: str
) -> None:
    """Both print the same single line and end with the same status."""
    (shop / "typo.yml").write_text("concurency: 5\n")
    for command in ("config", "worker"):
        ended = jobwire(command, *arguments, cwd=shop, **environ)
        assert ended.returncode == status, ended.stderr
        assert ended.stdout == ""
        line = ended.stderr.splitlines()[-1]
        assert line.startswith("jobwire: ")
        assert words in line


def test_a_worker_needs_no_arguments(server: Server, workers: Workers, tmp_path: Path) -> None:
    """BEAT-4, EXEC-1: application, Redis and queues from sidekiq.yml, as its process shows."""
    (tmp_path / "sidekiq.yml").write_text(
        f"app: tests.apps.recording:app\nredis: {server.url}\n"
        ":queues:\n  - [critical, 3]\n  - default\n:concurrency: <%= ENV['ABSENT'] || 3 %>\n"
        ":require: ./app.rb\nstaging:\n  :tag: shop\n  :labels: [slow]\n"
        ":capsules:\n  :mail:\n    :queues: [mail]\n    :concurrency: 1\n"
    )
    worker = workers.start("--config=sidekiq.yml", "-e", "staging")
    client = server.client()
    identity = worker.identity(client)
    text: Any = client.hget(identity, "info")
    info = json.loads(text)
    assert (info["tag"], info["labels"]) == ("shop", ["slow"])
    assert {name: capsule["weights"] for name, capsule in info["capsules"].items()} == {
        "default": {"critical": 3, "default": 0},
        "mail": {"mail": 0},
    }
    assert [capsule["concurrency"] for capsule in info["capsules"].values()] == [3, 1]
    wait_until(lambda: worker.logged("(from sidekiq.yml:2)"))
    assert worker.logged("sidekiq.yml:7: require has no meaning for jobwire; ignored")
    ended = jobwire("enqueue", "Note", "1", "-q", "critical", REDIS_URL=server.url)
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: client.llen("test:ran") == 1, timeout=60)


ASK_EVERY_COMMAND = """
import contextlib, io, json, os, sys
import click
import jobwire.bench, jobwire.cli.enqueue, jobwire.cli.exporter, jobwire.cli.inspect.options
import jobwire.web
from jobwire import App
from jobwire.cli import cli, main

how, *more = sys.argv[1:]

class Found(BaseException):
    pass

def found(url, *rest, **named):
    raise Found(url, named.get("namespace", rest[0] if rest else ""))

def leaves(group, *path):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        elif any(option.name == "url" for option in command.params) and name != "validate":
            yield (*path, name), command

def words_of(command):
    for each in command.params:
        if each.name == "address":  # a URL, which comes from the configuration here
            continue
        if isinstance(each, click.Argument):
            yield {"class_name": "greet", "place": "dead", "source": "entries.toml"}.get(
                each.name, "x")
        elif each.name in ("yes", "any_class"):
            yield each.opts[-1]
    if command.name == "reschedule":
        yield "--in=5"
    if command.name == "unpark":
        yield "--all"

def run(*words):
    sys.argv = ["jobwire", *words, *more]
    if how == "django":
        from django.core.management import execute_from_command_line
        execute_from_command_line(["manage.py", *sys.argv])
    elif how == "flask":
        import flask.cli
        sys.argv[:1] = ["flask", "--app", "shop", "jobwire"]
        flask.cli.main()
    else:
        main()

class Terminal(io.StringIO):
    isatty = lambda self: True

def answer(*words):
    out = Terminal()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            run(*words)
        except Found as place:
            return list(place.args)
        except SystemExit:
            return out.getvalue()

sys.stdin = Terminal()
open("entries.toml", "w").write("")
shown = answer("config", "--json")
assert "{" in shown, shown
answers = {"config": json.loads(shown[shown.index("{"):])["settings"]["redis"]["value"]}
App.connect = lambda app, url: found(url, app.namespace)  # config has loaded the application
jobwire.cli.enqueue.Client = jobwire.cli.inspect.show.Client = found
jobwire.cli.inspect.options.Inspector = jobwire.cli.inspect.options.Operations = found
jobwire.cli.exporter.FleetReaders = lambda places: found(*places()[""])
jobwire.web.WebApp = jobwire.bench.BenchServer = found
for path, command in leaves(cli):
    answers[" ".join(path)] = answer(*path, *words_of(command))
print(json.dumps(answers))
"""
URL = "redis://127.0.0.1:1/5"
JOBS = "from jobwire import App\napp = App(%s, namespace='shop')\n@app.job\ndef greet(): ...\n"
WEB = f"""
import flask
from jobwire.flask import Jobs
from jobs import app
web = flask.Flask("shop")
web.config["JOBWIRE_REDIS_URL"] = "{URL}"
jobs = Jobs(app, web)
"""
DJANGO_JOBS = "from jobwire.django import app\n@app.job\ndef greet(): ...\n"
SETTINGS_PY = f"""
INSTALLED_APPS = ["jobwire.django", "shop"]
JOBWIRE = {{"URL": "{URL}", "NAMESPACE": "shop"}}
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("how", "files", "variables", "namespace"),
    [
        (
            ["jobwire"],
            {"jobs.py": JOBS % repr(URL), "jobwire.toml": "app = 'jobs:app'"},
            {},
            "shop",
        ),
        (
            ["jobwire"],
            {"jobs.py": JOBS % repr(URL)},
            {"JOBWIRE_APP": "jobs:app", "JOBWIRE_REDIS_URL": "redis://127.0.0.1:2"},
            "shop",
        ),
        (["jobwire"], {}, {"REDIS_URL": URL}, ""),
        (["flask"], {"jobs.py": JOBS % None, "shop.py": WEB}, {}, "shop"),
        (
            ["django"],
            {"settings.py": SETTINGS_PY, "shop/jobs.py": DJANGO_JOBS},
            {"DJANGO_SETTINGS_MODULE": "settings"},
            "shop",
        ),
    ],
    ids=["toml-app", "variable-app", "variable", "flask", "django"],
)
def test_every_command_uses_the_redis_and_the_namespace_of_the_configuration(
    tmp_path: Path, how: list[str], files: dict[str, str], variables: dict[str, str], namespace: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", ASK_EVERY_COMMAND, *how],
        cwd=tmp_path,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert answers.pop("config") == URL
    assert len(answers) > 40
    answers["bench"] = [*answers["bench"][:1], namespace]  # its keys have a prefix of their own
    assert answers == {name: [URL, namespace] for name in answers}


def test_a_file_of_queues_is_for_launchers(shop: Path) -> None:
    """A worker serves the queues of the file, and --check finds out that it is old."""
    ended = jobwire("queues", cwd=shop)
    assert ended.stdout.split() == ["queue", "classes", "default", "reports", "report"]
    for _ in range(2):
        assert jobwire("queues", "--write", "all.yml", cwd=shop).returncode == 0
    assert jobwire("queues", "--check", "all.yml", cwd=shop).returncode == 0
    assert not list(shop.glob("*.new"))
    shown = jobwire("config", "-C", "all.yml", "-r", "shop:app", "--json", cwd=shop)
    values = json.loads(shown.stdout)["settings"]
    assert values["queues"] == {"value": {"default": 1, "reports": 1}, "source": "all.yml:2"}

    (shop / "shop.py").write_text(SHOP.replace("reports", "Grüße: '1'"))
    ended = jobwire("queues", "--check", "all.yml", cwd=shop)
    assert ended.returncode == 1
    assert "(Grüße: '1', default); run jobwire queues --write all.yml" in ended.stderr
    assert jobwire("queues", "--check", "none.yml", cwd=shop).returncode == 1
    assert jobwire("queues", "--write", "all.yml", cwd=shop).returncode == 0
    ended = jobwire("config", "-C", "all.yml", "-r", "shop:app", "--json", cwd=shop)
    queues = json.loads(ended.stdout)["settings"]["queues"]["value"]
    assert queues == {"Grüße: '1'": 1, "default": 1}
    for line in jobwire("queues", "--json", cwd=shop).stdout.splitlines():
        assert json.loads(line)["queue"] in queues


def test_a_file_of_somebody_else_is_kept(shop: Path) -> None:
    """A settings file of the user is not replaced by a list of queues."""
    ended = jobwire("queues", "--write", "jobwire.toml", cwd=shop)
    assert ended.returncode == 2
    assert "jobwire.toml was not written by this command" in ended.stderr
    assert (shop / "jobwire.toml").read_text() == TOML
    ended = jobwire("queues", "--write", "none/all.yml", cwd=shop)
    assert ended.returncode == 2
    assert "none/all.yml cannot be written: No such file" in ended.stderr
    ended = jobwire("queues", "--json", "--check", "all.yml", cwd=shop)
    assert ended.returncode == 2
    assert "exclude each other" in ended.stderr
