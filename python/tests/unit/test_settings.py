"""jobwire.settings: effective settings, their sources, and their faults."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobwire import ConfigError
from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.settings import SETTINGS, Settings, resolve
from jobwire.settings.schedules import from_file

Resolve = Callable[..., Settings]


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Return `resolve` for a directory with the named file in it."""
    monkeypatch.chdir(tmp_path)

    def loaded(
        text: str = "",
        name: str = "jobwire.toml",
        *,
        flags: dict[str, Any] | None = None,
        environment: str | None = None,
        file: str | None = None,
        **environ: str,
    ) -> Settings:
        if text:
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(text, "utf-8")
        if file is None and text and Path(name).name.startswith("sidekiq."):
            file = name
        return resolve(flags or {}, environ, tmp_path, file=file, environment=environment)

    return loaded


def source(settings: Settings, name: str) -> tuple[Any, str]:
    given = settings.values[name]
    return given.value, given.source


# -- precedence


def test_the_nearest_word_counts(loaded: Resolve) -> None:
    """The order is flag, variable, the file's section, the file, default."""
    text = "timeout = 1\n\n[production]\ntimeout = 2\n"
    production = {"JOBWIRE_ENV": "production"}
    steps: list[tuple[dict[str, Any], tuple[Any, str]]] = [
        ({}, (25.0, "default")),
        ({"text": text}, (1, "jobwire.toml:1")),
        ({"text": text, **production}, (2, "jobwire.toml:4 [production]")),
        ({"text": text, **production, "JOBWIRE_TIMEOUT": "3"}, (3, "JOBWIRE_TIMEOUT")),
        (
            {"text": text, **production, "JOBWIRE_TIMEOUT": "3", "flags": {"timeout": "4"}},
            (4, "--timeout"),
        ),
    ]
    for given, expected in steps:
        assert source(loaded(**given), "timeout") == expected


def test_without_anything_it_is_the_default_worker(loaded: Resolve) -> None:
    """FETCH-4, and all other defaults of `WorkerConfig`."""
    assert loaded().worker() == WorkerConfig()


def test_the_environment_is_the_nearest_named(loaded: Resolve) -> None:
    names = ["RACK_ENV", "RAILS_ENV", "APP_ENV", "JOBWIRE_ENV"]
    assert loaded().environment.value == "development"
    environ: dict[str, str] = {}
    for name in names:
        environ[name] = name.lower()
        assert loaded(**environ).environment.value == name.lower()
    assert loaded(environment="x", **environ).environment.value == "x"


def test_a_named_environment_without_a_section_is_noted(loaded: Resolve) -> None:
    text = "[production]\ntimeout = 2\n"
    assert loaded(text).notes == []
    (note,) = loaded(text, APP_ENV="prodution").notes
    assert "'prodution'" in note
    assert "its sections are production" in note


# -- variables

# A schedule without entries; the entries of files are tested in test_schedules.py.
SCHEDULE = str(Path(__file__).with_name("empty_schedule.toml"))

VARIABLES: dict[str, tuple[str, Any]] = {
    "JOBWIRE_APP": ("shop.jobs:app", "shop.jobs:app"),
    "JOBWIRE_REDIS_URL": ("redis://r", "redis://r"),
    "JOBWIRE_QUEUES": ("critical,3 low", {"critical": 3, "low": 0}),
    "JOBWIRE_CONCURRENCY": ("7", 7),
    "JOBWIRE_CAPSULES": (
        "mail=2 mail,3 news; slow=1 slow",
        {
            "mail": CapsuleConfig(queues={"mail": 3, "news": 0}, concurrency=2),
            "slow": CapsuleConfig(queues={"slow": 0}, concurrency=1),
        },
    ),
    "JOBWIRE_PROCESSES": ("2", 2),
    "JOBWIRE_FETCH": ("basic", "basic"),
    "JOBWIRE_TIMEOUT": ("2.5", 2.5),
    "JOBWIRE_POLL_INTERVAL": ("none", None),
    "JOBWIRE_PRECISE": ("yes", True),
    "JOBWIRE_MAX_RETRIES": ("3", 3),
    "JOBWIRE_POISON_LIMIT": ("1", 1),
    "JOBWIRE_UNKNOWN_JOBS": ("sidekiq", "sidekiq"),
    "JOBWIRE_FOREIGN": (
        "bid=run encrypt=park",
        {
            **{"encrypt": "park", "bid": "run", "expires_in": "park"},
            **{"unique_for": "run", "overrated": "run", "delayed": "park"},
        },
    ),
    "JOBWIRE_HAND_OVER": ("Reports::*=ruby A=b", {"Reports::*": "ruby", "A": "b"}),
    "JOBWIRE_HONOUR_PAUSED": ("pro", "pro"),
    "JOBWIRE_MAX_ITERATION_RUNTIME": ("300", 300),
    "JOBWIRE_MEMORY_LIMIT": ("512", 512),
    "JOBWIRE_DEAD_LIMIT": ("100", 100),
    "JOBWIRE_DEAD_MAX_AGE": ("86400", 86400),
    "JOBWIRE_PERIODIC": ("no", False),
    "JOBWIRE_SCHEDULE": (SCHEDULE, []),
    "JOBWIRE_TAG": ("shop", "shop"),
    "JOBWIRE_LABELS": ("a b", ["a", "b"]),
    "JOBWIRE_HEALTH_PORT": ("9928", 9928),
    "JOBWIRE_METRICS_PORT": ("none", None),
    "JOBWIRE_LISTEN_HOST": ("0.0.0.0", "0.0.0.0"),
    "JOBWIRE_LOG_FORMAT": ("json", "json"),
    "JOBWIRE_LOG_LEVEL": ("debug", "debug"),
}


def test_every_setting_has_a_variable(loaded: Resolve) -> None:
    """Every field of `WorkerConfig` is also a setting."""
    assert {setting.variable for setting in SETTINGS.values()} == set(VARIABLES)
    assert set(WorkerConfig.__dataclass_fields__) <= set(SETTINGS)
    settings = loaded(**{name: text for name, (text, _) in VARIABLES.items()})
    for name, setting in SETTINGS.items():
        assert source(settings, name) == (VARIABLES[setting.variable][1], setting.variable)
    settings.worker()


def test_an_empty_variable_is_none(loaded: Resolve) -> None:
    assert source(loaded(JOBWIRE_CONCURRENCY=""), "concurrency") == (5, "default")


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        (
            {"JOBWIRE_CONCURRENCY": "many"},
            "JOBWIRE_CONCURRENCY: concurrency: 'many' is not a whole",
        ),
        ({"JOBWIRE_CONCURRENCY": "0"}, "JOBWIRE_CONCURRENCY: concurrency: 0 is less than 1"),
        ({"JOBWIRE_TIMEOUT": "nan"}, "JOBWIRE_TIMEOUT: timeout: nan is not"),
        ({"JOBWIRE_PRECISE": "maybe"}, "precise: 'maybe' is not true or false"),
        ({"JOBWIRE_LOG_LEVEL": "loud"}, "log_level: 'loud' is not one of 'debug', 'info'"),
        ({"JOBWIRE_QUEUES": "a,x"}, "JOBWIRE_QUEUES: queue 'a,x'"),
        ({"JOBWIRE_FOREIGN": "bid"}, "foreign: 'bid' is not of the form FEATURE=POLICY"),
        ({"JOBWIRE_FOREIGN": "encrypt=run"}, "foreign: encrypt cannot run: its arguments"),
        ({"JOBWIRE_FOREIGN": "batch=run"}, "foreign: 'batch' is not one of encrypt, bid"),
        ({"JOBWIRE_FOREIGN": "bid=kill"}, "foreign: 'kill' of bid is not one of park, run"),
        ({"JOBWIRE_HAND_OVER": "A"}, "hand_over: 'A' is not of the form PATTERN=QUEUE"),
        ({"JOBWIRE_HAND_OVER": "A="}, "hand_over: a pattern of classes or a queue is empty"),
        ({"JOBWIRE_CAPSULES": "a=1 b; a=1 c"}, "JOBWIRE_CAPSULES: capsule 'a' is named twice"),
        ({"JOBWIRE_CONCURENCY": "5"}, "JOBWIRE_CONCURENCY: .*did you mean JOBWIRE_CONCURRENCY"),
        ({"JOBWIRE_REDIS": "x"}, "JOBWIRE_REDIS: .*did you mean JOBWIRE_REDIS_URL"),
    ],
)
def test_a_wrong_variable_is_named(loaded: Resolve, environ: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        loaded(**environ)


def test_other_peoples_variables_are_left_alone(loaded: Resolve) -> None:
    loaded(JOBWIRE_CACHE="x", JOBWIRE_SEED="1", CONCURRENCY="many")


# -- choice of the file


def test_files_are_found_by_name(loaded: Resolve) -> None:
    for name, text in {
        "jobwire.toml": "tag = 'x'",
        "jobwire.yml": "tag: x",
        "jobwire.yaml": "tag: x",
        "pyproject.toml": "[tool.jobwire]\ntag = 'x'",
    }.items():
        assert loaded(text, name).file.value == name
        assert loaded()["tag"] == "x"
        Path(name).unlink()


def test_two_files_are_refused_unless_one_is_named(loaded: Resolve) -> None:
    Path("pyproject.toml").write_text("[project]\nname = 'jobwire-shop'\n")
    loaded("tag: a", "jobwire.yml")
    Path("jobwire.toml").write_text("tag = 'b'")
    with pytest.raises(ConfigError, match=r"jobwire.toml and jobwire.yml both have settings.*-C"):
        loaded()
    assert loaded(file="jobwire.yml")["tag"] == "a"
    assert loaded(JOBWIRE_CONFIG="jobwire.toml")["tag"] == "b"
    assert loaded(file="jobwire.yml", JOBWIRE_CONFIG="jobwire.toml")["tag"] == "a"


def test_the_conformance_suites_file_is_refused(loaded: Resolve) -> None:
    """The suite's settings once had the same name as a worker's."""
    loaded('[implementation]\nname = "shop"', "conformance.toml")
    assert loaded().file.value is None
    Path("conformance.toml").rename("jobwire.toml")
    for named in ({}, {"file": "jobwire.toml"}):
        with pytest.raises(ConfigError, match=r"jobwire.toml: .*rename it to conformance.toml"):
            loaded(**named)


def test_rubys_file_is_used_only_if_named(loaded: Resolve) -> None:
    """Its queues hold jobs that only Ruby can run."""
    loaded("concurrency: 3", "config/sidekiq.yml")
    loaded("concurrency: 3", "sidekiq.yml")
    assert loaded().file.value is None
    assert loaded(file="config/sidekiq.yml")["concurrency"] == 3


DEEP = "[" * 1500 + "]" * 1500
BOMB = "a0: &a0 [1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("gone.toml", None, "gone.toml: cannot be read: No such file"),
        ("jobwire.ini", "x", "jobwire.ini: its name must end in .toml, .yml"),
        ("jobwire.toml", "tag = x", r"jobwire.toml: not TOML: .*line 1"),
        ("jobwire.yml", "tag: [\n", r"jobwire.yml:2: not YAML: "),
        ("jobwire.yml", "tag: a\x00b\n", r"jobwire.yml: not YAML: "),
        ("jobwire.yml", "- a\n- b\n", "jobwire.yml:1: the file is not a mapping"),
        ("jobwire.yml", "\ntag: !ruby/object:Shop {}\n", "jobwire.yml:2: "),
        ("jobwire.yml", "tag: !!python/object/apply:os.getcwd []\n", "jobwire.yml:1: "),
        ("jobwire.yml", "tag: a\ntimeout: 1\ntag: b\n", "jobwire.yml:3: tag is already on line 1"),
        ("jobwire.yml", "5: a\n", "jobwire.yml:1: the key '5' is not a string"),
        ("jobwire.yml", "labels: &a [*a]\n", "jobwire.yml:1: an alias contains itself"),
        ("jobwire.yml", f"tag: {DEEP}", "jobwire.yml: its values are nested too deeply"),
        ("jobwire.toml", f"tag = {DEEP}", "jobwire.toml: its values are nested too deeply"),
        ("jobwire.yml", BOMB, "jobwire.yml: its aliases expand to more than 100,000 values"),
        ("pyproject.toml", "[project]\nname = 'x'\n", r"has no table \[tool.jobwire\]"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_file_that_cannot_be_used(
    loaded: Resolve, name: str, text: str | None, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        loaded(text or "", name, file=name)


def test_a_file_that_is_not_utf_8(loaded: Resolve) -> None:
    Path("jobwire.yml").write_bytes(b"tag: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"jobwire.yml: not UTF-8 at byte 8"):
        loaded()


def test_yaml_without_pyyaml(loaded: Resolve, monkeypatch: pytest.MonkeyPatch) -> None:
    """One message names the fix; TOML still works."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"jobwire.yml: .*pip install 'jobwire\[yaml\]'"):
        loaded("tag: a", "jobwire.yml")
    Path("jobwire.yml").unlink()
    assert loaded("tag = 'a'")["tag"] == "a"


# -- contents of files

FULL_TOML = """\
app = "shop.jobs:app"
queues = ["critical,3", ["default", 2], "low"]
concurrency = 10
labels = ["a", "b"]
precise = false
memory_limit = 512

[capsules.mail]
queues = { mail = 1, "news" = 2 }
concurrency = 2

[capsules.slow]
queues = ["slow"]
"""
FULL_YAML = """\
app: shop.jobs:app
queues:
  - critical,3
  - [default, 2]
  - low
concurrency: 10
labels: [a, b]
precise: false
memory_limit: 512
capsules:
  mail:
    queues: {mail: 1, news: 2}
    concurrency: 2
  slow:
    queues:
      - slow
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("jobwire.toml", FULL_TOML),
        ("pyproject.toml", "[tool.jobwire]\n" + FULL_TOML.replace("[cap", "[tool.jobwire.cap")),
        ("jobwire.yml", FULL_YAML),
    ],
)
def test_the_same_in_every_format(loaded: Resolve, name: str, text: str) -> None:
    settings = loaded(text, name)
    assert settings.worker() == WorkerConfig(
        capsules={
            "default": CapsuleConfig(
                queues={"critical": 3, "default": 2, "low": 0}, concurrency=10
            ),
            "mail": CapsuleConfig(queues={"mail": 1, "news": 2}, concurrency=2),
            "slow": CapsuleConfig(queues={"slow": 0}, concurrency=5),
        },
        labels=["a", "b"],
        precise=False,
        memory_limit=512,
    )
    assert settings["app"] == "shop.jobs:app"
    first = 2 if name == "pyproject.toml" else 1
    assert settings.values["app"].source == f"{name}:{first}"
    capsules = 10 if name == "jobwire.yml" else first + 7
    assert settings.values["capsules"].source == f"{name}:{capsules}"


@pytest.mark.parametrize(
    ("queues", "expected"),
    [
        ("[a, b]", {"a": 0, "b": 0}),
        ("[[a, 2], [b, 1]]", {"a": 2, "b": 1}),
        ("[[a], b]", {"a": 0, "b": 0}),
        ("{a: 2, b: 1}", {"a": 2, "b": 1}),
        ("[a: 2, b: 1]", {"a": 2, "b": 1}),
        ("a,2 b", {"a": 2, "b": 0}),
        ("[a, a, b]", {"a": 0, "b": 0}),
        ("[[a, 2], b, [a, 1]]", {"a": 3, "b": 0}),
        ("[a, [a, 2]]", {"a": 3}),
        ("\n  - :a\n  -\n    - :b\n    - 2", {"a": 0, "b": 2}),
        ("[':a']", {":a": 0}),
        ("['${Q}', [b, '${W}']]", {"x": 4, "b": 9}),
        ("${QS}", {"x": 1, "y": 0}),
    ],
)
def test_ways_to_write_queues(loaded: Resolve, queues: str, expected: dict[str, int]) -> None:
    """FETCH-4: a repeated name counts each time, as in Sidekiq 7 and later."""
    settings = loaded(f"queues: {queues}\n", "jobwire.yml", Q="x,4", W="9", QS="x,1 y")
    assert settings["queues"] == expected
    assert list(settings["queues"]) == list(expected)


WRONG: list[tuple[str, str]] = [
    ("concurency: 5", ":1: concurency: no such setting; did you mean concurrency?"),
    ("xyz: 5", ":1: xyz: no such setting; expected one of app, redis, queues"),
    ("dead_max_jobs: 5", ":1: dead_max_jobs: no such setting; Sidekiq's .* is dead_limit here"),
    ("tag: a\nconcurrency: five", ":2: concurrency: 'five' is not a whole number"),
    ("concurrency: '5'", ":1: concurrency: '5' is not a whole number"),
    ("concurrency: true", ":1: concurrency: True is not a whole number"),
    ("concurrency: 5.5", ":1: concurrency: 5.5 is not a whole number"),
    ("concurrency: 0", ":1: concurrency: 0 is less than 1"),
    ("concurrency: [5]", r":1: concurrency: \[5\] is not a whole number"),
    ("timeout: soon", ":1: timeout: 'soon' is not a number of seconds"),
    ("timeout: .inf", ":1: timeout: inf is not a number of seconds"),
    ("precise: 1", ":1: precise: 1 is not true or false"),
    ("tag: 2001-13-45", ":1: '2001-13-45' is not a YAML value; put it in quotes"),
    ("tag: 5", ":1: tag: 5 is not a string; put it in quotes"),
    ("labels: [on]", ":1: labels: True is not a string; put it in quotes"),
    ("labels: 5", ":1: labels: 5 is not a list"),
    ("queues: [5]", ":1: queues: 5 is not a string; put it in quotes"),
    ("queues: 5", ":1: queues: 5 is not a mapping of queue names to weights"),
    ("queues: []", ":1: queues: a capsule needs at least one"),
    ("queues: [[a, x]]", ":1: queues: weight 'x' of 'a' is not a whole number"),
    ("queues: [[a, -1]]", ":1: queues: weight -1 of 'a'"),
    ("queues: [[a, 1, 2]]", r":1: queues: \['a', 1, 2\] is not of the form \[NAME, WEIGHT\]"),
    ("queues: ['a,x']", ":1: queue 'a,x': the weight 'x'"),
    ("capsules: 5", ":1: capsules: 5 is not of the form NAME: "),
    ("capsules:\n  mail: 5", ":2: capsule 'mail' is not of the form"),
    (
        "capsules:\n  mail:\n    queue: [a]",
        ":3: capsule 'mail': queue: no such setting; did you mean queues?",
    ),
    (
        "capsules:\n  mail:\n    queues: [a]\n    concurrency: 0",
        ":4: capsule 'mail': concurrency: 0 is less than 1",
    ),
    ("capsule:\n  mail: {queues: [a]}", ":1: capsule: no such setting; did you mean capsules?"),
    ("production:\n  timout: 5", ":2: timout: no such setting; did you mean timeout?"),
    ("production:\n  tag: ${GONE}\ntag: ${GONE}", r":3: \$\{GONE\}: the variable is not set"),
    ("tag: ${GONE", ":1: '.{6}' names no variable"),
    ("tag: ${1}", r":1: '\$\{1\}' names no variable"),
    (
        "\n\ntag: <%= Shop.name %>",
        ":3: the tag '<%= Shop.name %>' is Ruby code, which is never run",
    ),
    ("tag: <%= ENV.fetch('GONE') %>", r":1: ENV.fetch\('GONE'\): the variable is not set"),
    ("tag: a\n<% if true %>\ntimeout: 3\n<% end %>", ":2: the tag '<% if true %>' is Ruby code"),
    ("tag: <%= Integer(ENV['A']) %>", r":1: Integer\(''\): the value is not a number"),
    ("tag: <%= Integer(ENV.fetch('A', 'x')) %>", r":1: Integer\('x'\): the value is not a number"),
    *(
        (f"tag: <%= {code} %>", ":1: the tag '<%= .* is Ruby code, which is never run; write")
        for code in (
            *("", "ENV", "ENV[A]", "ENV.fetch('A'", "ENV['A'].strip", "ENV['A'] if true", "(1"),
            *("ENV.fetch('A') { |name| 5 }", "5 5", "5.minutes", "Integer('5', 8)", "system('id')"),
            *("ENV['A'] == '1'", "Rails.env.production?", 'ENV["A#{1}"]', "true.to_i", "ENV.to_h"),
        )
    ),
    ("tag: <%= ENV['A'] + `id` %>", ":1: the tag .* is Ruby code, which is never run"),
    ("tag: <%= ENV['A']", ":1: the tag .* is Ruby code, which is never run"),
]


@pytest.mark.parametrize(("text", "problem"), WRONG, ids=[text for text, _ in WRONG])
def test_what_is_wrong_is_said_with_file_and_line(loaded: Resolve, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match="^jobwire.yml" + problem):
        loaded(text, "jobwire.yml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# x\nconcurency = 5", ":2: concurency: no such setting; did you mean concurrency?"),
        ("concurrency = 5.0", ":1: concurrency: 5.0 is not a whole number"),
        ("timeout = 1979-05-27", ":1: timeout: datetime.date"),
        ("[capsules.mail]\nqueue = ['a']", ":2: capsule 'mail': queue: no such setting"),
        ("[production]\n\ntimout = 5", ":3: timout: no such setting"),
        ("capsules.mail.concurrency = 0", ":1: capsule 'mail': concurrency: 0 is less"),
    ],
)
def test_toml_has_lines_too(loaded: Resolve, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match="^jobwire.toml" + problem):
        loaded(text)


def test_what_no_chosen_section_says_may_lack_its_variables(loaded: Resolve) -> None:
    text = "production:\n  redis: ${SHOP_REDIS}\n"
    assert loaded(text, "jobwire.yml")["redis"] is None
    with pytest.raises(ConfigError, match=r":2: \${SHOP_REDIS}: the variable is not set"):
        loaded(text, "jobwire.yml", APP_ENV="production")


@pytest.mark.parametrize(
    ("value", "environ", "expected"),
    [
        ("${N}", {"N": "7"}, 7),
        ("${N:-8}", {"N": "7"}, 7),
        ("${N:-8}", {}, 8),
        ("${N:-8}", {"N": ""}, 8),
        ("1${N}", {"N": "7"}, 17),
        ('<%= ENV["N"] %>', {"N": "7"}, 7),
        ('<%= ENV["N"] %>', {}, 5),
        ("<%= ENV['N'] || 8 %>", {"N": "7"}, 7),
        ("<%= ENV['N'] || 8 %>", {}, 8),
        ("<%=ENV['N']||'8'-%>", {}, 8),
        ("<%= ENV['N'] || 8 %>", {"N": ""}, 5),
        ('<%= ENV.fetch("N", 8) %>', {}, 8),
        ('<%= ENV.fetch("N", "8") %>', {"N": "7"}, 7),
        ("<%= ENV.fetch('N') { 8 } %>", {}, 8),
        ("<%= ENV.fetch('N') %>", {"N": "7"}, 7),
        ('<%= ENV.fetch("N") { 8 }.to_i %>', {}, 8),
        ('<%= ENV.fetch("N") { 8 }.to_i %>', {"N": " 7 threads"}, 7),
        ("<%= (ENV['N'] || 8).to_i -%>", {}, 8),
        ("1<%= (ENV['N'] || 8).to_i %>", {"N": ""}, 10),
        ("<%= Integer(ENV.fetch('N', 8)) %>", {}, 8),
        ('<%= Integer(ENV["N"] || ENV["M"] || "8") %>', {"M": "7"}, 7),
        ("<%= ENV.fetch('N', ENV.fetch('M', 8)) %>", {}, 8),
        ("<%= ENV['N'] || ENV.fetch('M') %>", {"N": "7"}, 7),
        ("<%= ENV.fetch('N') do 8 end %>", {}, 8),
        ("<%= ENV['N'].presence || 8 %>", {"N": " "}, 8),
        ("<%= ENV['N'].to_s.to_i || 8 %>", {"N": "1_0"}, 10),
        ("<%= ENV.fetch('N', '8.9').to_f.to_i %>", {}, 8),
        ("<%= (ENV.fetch('N') { nil } || 1_0) %>", {}, 10),
        ("9 # <%= Shop.threads %>", {}, 9),
        ("9 <%# Shop.threads %>", {}, 9),
        ("9\n# <% if false %>\n# <% end %>", {}, 9),
    ],
)
def test_variables_in_a_file(
    loaded: Resolve, value: str, environ: dict[str, str], expected: int
) -> None:
    """Their content is a value: it cannot add keys."""
    assert loaded(f"concurrency: {value}\n", "jobwire.yml", **environ)["concurrency"] == expected


def test_a_variable_cannot_write_yaml(loaded: Resolve) -> None:
    settings = loaded("tag: ${T}\n", "jobwire.yml", T="x\nconcurrency: 99")
    assert (settings["tag"], settings["concurrency"]) == ("x\nconcurrency: 99", 5)


def test_texts_with_variables_are_plain_texts(loaded: Resolve) -> None:
    """BEAT-4: they become part of the process info, which is JSON."""
    text = "tag: ${A}\nlabels: ['${A}']\nqueues: ['${A}', ['${B}', 1], ['${C}']]\n"
    settings = loaded(text, "jobwire.yml", A="a", B="b", C="c")
    values = [settings["tag"], *settings["labels"], *settings["queues"]]
    assert values == ["a", "a", "a", "b", "c"]
    assert {type(text) for text in values} == {str}


def test_a_dollar_can_be_meant(loaded: Resolve) -> None:
    assert loaded('tag = "$${HOME} $5"')["tag"] == "${HOME} $5"


# -- sidekiq.yml

RUBYS = """\
# Sample of usual settings
---
:verbose: false
:concurrency: <%= ENV.fetch("RAILS_MAX_THREADS") { 5 } %>
:timeout: 30
:max_retries: 3
:dead_max_jobs: 500
:dead_timeout_in_seconds: 3600
:poll_interval_average: 2
:tag: shop
:labels:
  - :reliable
:require: ./config/environment.rb
:logfile: log/sidekiq.log
:strict: true
:queues:
  - [critical, 3]
  - [default, 2]
  - :low
:capsules:
  :mail:
    :concurrency: 1
    :queues:
      - mailers
defaults: &defaults
  :timeout: 8
staging:
  <<: *defaults
  :concurrency: 2
:scheduler:
  :schedule:
    cleanup: {cron: '0 * * * *', class: Cleanup}
production:
  :concurrency: 20
  :queues:
    - critical
    - default
"""


def test_sidekiqs_own_file(loaded: Resolve) -> None:
    """The file is written for Ruby: symbols, tags, sections, keys of gems."""
    settings = loaded(RUBYS, "sidekiq.yml")
    assert settings.worker() == WorkerConfig(
        capsules={
            "default": CapsuleConfig(queues={"critical": 3, "default": 2, "low": 0}, concurrency=5),
            "mail": CapsuleConfig(queues={"mailers": 0}, concurrency=1),
        },
        timeout=30,
        max_retries=3,
        dead_limit=500,
        dead_max_age=3600,
        poll_interval=2,
        tag="shop",
        labels=["reliable"],
    )
    assert settings["log_level"] == "info"
    ignored = " ".join(settings.notes)
    for name in ("require", "logfile", "strict"):
        assert f"{name} has no meaning for jobwire; ignored" in ignored
    assert "scheduler has periodic jobs, which only --schedule sidekiq.yml reads" in ignored
    assert len(settings.notes) == 4
    assert settings.values["timeout"].source == "sidekiq.yml:5"

    production = loaded(RUBYS, "sidekiq.yml", RAILS_ENV="production", RAILS_MAX_THREADS="7")
    default = production.worker().capsules["default"]
    assert default == CapsuleConfig(queues={"critical": 0, "default": 0}, concurrency=20)
    staging = loaded(RUBYS, "sidekiq.yml", environment="staging", RAILS_MAX_THREADS="7")
    assert (staging["concurrency"], staging["timeout"]) == (2, 8)


@pytest.mark.parametrize(
    ("value", "tag"), [(":shop", "shop"), ("':shop'", ":shop"), (":5", ":5"), ("a:b", "a:b")]
)
def test_a_symbol_is_a_plain_word_behind_a_colon(loaded: Resolve, value: str, tag: str) -> None:
    assert loaded(f"tag: {value}\n", "sidekiq.yml")["tag"] == tag


def test_verbose_is_the_log_level(loaded: Resolve) -> None:
    assert loaded(":verbose: true\n", "sidekiq.yml")["log_level"] == "debug"


@pytest.mark.parametrize("name", ["sidekiq.yml", "sidekiq.yml.erb", "sidekiq.yaml"])
def test_a_misspelt_setting_is_refused_there_too(loaded: Resolve, name: str) -> None:
    with pytest.raises(ConfigError, match=r"yml|yaml.*:1: concurency: .*did you mean concurrency"):
        loaded(":concurency: 5\n", name)


def test_keys_of_gems_are_not(loaded: Resolve) -> None:
    (note,) = loaded("web_password: x\n", "sidekiq.yml").notes
    assert note == "sidekiq.yml:1: web_password has no meaning for jobwire; ignored"


# -- the resulting configuration


def test_the_default_capsule_is_made_once(loaded: Resolve) -> None:
    """BEAT-4: each capsule has its own name."""
    text = "capsules:\n  default: {queues: [a], concurrency: 1}\n"
    only = loaded(text, "jobwire.yml").worker()
    assert only.capsules == {"default": CapsuleConfig(queues={"a": 0}, concurrency=1)}
    with pytest.raises(ConfigError, match=r"--queue: queues and jobwire.yml:1 both define"):
        loaded(flags={"queues": ("a",)}).worker()


def test_another_default_counts_only_if_nobody_spoke(loaded: Resolve) -> None:
    settings = loaded().otherwise("poll_interval", 1.0, "jobwire dev")
    assert source(settings, "poll_interval") == (1.0, "jobwire dev")
    settings = loaded(JOBWIRE_POLL_INTERVAL="2").otherwise("poll_interval", 1.0, "jobwire dev")
    assert source(settings, "poll_interval") == (2, "JOBWIRE_POLL_INTERVAL")


def test_flags_replace_lists(loaded: Resolve) -> None:
    settings = loaded("queues: [a, b]", "jobwire.yml", flags={"queues": ("c,2",), "precise": True})
    assert source(settings, "queues") == ({"c": 2}, "--queue")
    assert source(settings, "precise") == (True, "--precise")
    assert loaded(flags={"queues": ()})["queues"] == {"a": 0, "b": 0}


CRON = """\
# of sidekiq-cron
my_first_job:
  cron: "*/5 * * * *"
  class: "HardWorker"
  queue: hard_worker
  status: disabled
:second:
  cron: "30 2 * * * Europe/Berlin"
  class: Other
  args:
    hello: [1, "<%= ENV['UNSET'] || 'd' %>"]
  retry: 3
  active_job: true
"""
SCHEDULER = """\
:concurrency: 5
:scheduler:
  :schedule:
    hello_world:
      cron: '0 * * * * *'
      class: HelloWorld
      queue: low
    each:
      every: '10m'
      class: Each
"""
LIST = """\
- name: a
  cron: "@daily"
  class: A
  args: '[1, 2]'
- {name: b, cron: every 5 minutes, class: B, args: text}
"""


def write(directory: Path, name: str, text: str) -> str:
    (directory / name).write_text(text)
    return str(directory / name)


def test_a_file_of_sidekiq_cron(tmp_path: Path) -> None:
    """X-CRON-13: its lines stay as they are, because Ruby reads the same file."""
    first, second = from_file(write(tmp_path, "schedule.yml", CRON))
    assert (first.name, first.cron, first.job) == ("my_first_job", "*/5 * * * *", "HardWorker")
    assert (first.options, first.enabled) == ({"queue": "hard_worker"}, False)
    assert (second.name, second.args, second.enabled) == ("second", [{"hello": [1, "d"]}], None)
    assert (second.options, second.active_job) == ({"retry": 3}, True)


def test_a_file_of_sidekiq_scheduler(tmp_path: Path) -> None:
    first, second = from_file(write(tmp_path, "sidekiq.yml", SCHEDULER))
    assert (first.cron, first.options) == ("0 * * * * *", {"queue": "low"})
    assert second.cron == "every 10 minutes"


def test_a_list_of_entries(tmp_path: Path) -> None:
    first, second = from_file(write(tmp_path, "schedule.yaml", LIST))
    assert (first.name, first.args, second.args) == ("a", [1, 2], ["text"])


def test_a_table_gets_a_zone(tmp_path: Path) -> None:
    """X-CRON-13: from tz, or UTC; in a settings file it is below [schedule]."""
    text = '[schedule.a]\ncron = "0 3 * * *"\ntz = "Asia/Tokyo"\nclass = "A"\ncatch_up = "last"\n'
    (entry,) = from_file(write(tmp_path, "jobwire.toml", text))
    assert (entry.cron, entry.catch_up) == ("0 3 * * * Asia/Tokyo", "last")
    (entry,) = from_file(write(tmp_path, "a.toml", '[b]\ncron = "@daily"\nclass = "B"\n'))
    assert entry.cron == "@daily UTC"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {class: A}", "a: it needs a cron line and a class"),
        ("a: {cron: '* * * *', class: A}", "it has 4 fields"),
        ("a: {cron: '* * * * *', class: A, qeue: b}", "qeue: no such option; did you mean queue"),
        ("a: {cron: '* * * * *', class: A, status: off}", "status"),
        ("a: {at: '3001/01/01', class: A}", "at: '3001/01/01' of sidekiq-scheduler has no cron"),
        ("a: {every: 7m, class: A}", "7 does not divide"),
        ("a: {cron: '* * * * *', class: A, retry: many}", "retry"),
        ("a: text", "not of the form"),
        ("- {cron: '* * * * *', class: A}", "entry 1 of the list has no name"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, problem: str) -> None:
    """X-CRON-43: with the file and the entry."""
    with pytest.raises(ConfigError, match=problem) as raised:
        from_file(write(tmp_path, "schedule.yml", text))
    assert "schedule.yml" in str(raised.value)


def test_a_file_that_is_not_a_schedule(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        from_file(str(tmp_path / "none.yml"))
    with pytest.raises(ConfigError, match="must end in"):
        from_file(write(tmp_path, "a.txt", ""))
