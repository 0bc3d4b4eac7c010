"""docs/monitoring and docs/reference/metrics.md name only metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from jobwire.inspect.fleet import Fleet
from jobwire.inspect.processes import ProcessInfo
from jobwire.inspect.summary import QueueSummary
from jobwire.monitoring import ClassFigures, Figures, fleet_exposition, worker_exposition
from jobwire.monitoring.metrics import FLEET, WORKER
from tests.rows import over

DOCS = Path(__file__).resolve().parents[3] / "docs"
DASHBOARD = json.loads((DOCS / "monitoring/dashboard.json").read_text("utf-8"))
ALERTS = yaml.safe_load((DOCS / "monitoring/alerts.yml").read_text("utf-8"))
PAGE = (DOCS / "reference/metrics.md").read_text("utf-8")
TARGET = {"job", "instance"}  # labels that Prometheus adds

PROCESS = ProcessInfo(
    *("h:1:a", "h", 1, None, None, "", (), "8.1.7", ("q",), {}, 5, 1, False, False, 1, 1, {}),
)
NUMBERS = Fleet(
    *(1, 1, 1, 1, 1),
    dict.fromkeys(("scheduled", "retry", "dead", "unreadable"), 1),
    dict.fromkeys(("scheduled", "retry"), 1.0),
    1.0,
    [QueueSummary("q", 1, 1.0, paused=False)],
    [PROCESS],
)

FIGURES = Figures({"A": ClassFigures(1)}, ticks={"nightly": ClassFigures(1)})


def exposed() -> dict[str, list[dict[str, str]]]:
    """Return the labels of all samples by name."""
    found: dict[str, list[dict[str, str]]] = {}
    for made in (fleet_exposition(NUMBERS), worker_exposition(FIGURES)):
        for family in text_string_to_metric_families(made.body.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels)
    return found


EXPOSED = exposed()


def faults(expression: str) -> list[str]:
    """Return the names, labels and values of an expression that no exposition has."""
    wrong = []
    used: set[str] = set()
    for name, matchers in re.findall(r"\b(jobwire_\w+)\b(?:\{([^}]*)\})?", expression):
        samples = EXPOSED.get(name)
        if samples is None:
            wrong.append(name)
            continue
        used |= {*samples[0]}
        for label, operator, value in re.findall(r'(\w+)(=~|!=|!~|=)"([^"]*)"', matchers):
            values = {sample.get(label) for sample in samples}
            if label in TARGET:
                continue
            if values == {None} or (operator == "=" and value not in values):
                wrong.append(f"{name}{{{label}={value}}}")
    for labels in re.findall(r"\b(?:by|on|without|ignoring) *\(([^)]*)\)", expression):
        wrong += {*re.findall(r"\w+", labels)} - used - TARGET
    if any(expression.count(a) != expression.count(b) for a, b in ("()", "[]", "{}")):
        wrong.append("brackets")
    return wrong


def panels() -> Iterator[tuple[str, str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]


RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]


@over(("title", "expression", "legend"), [*panels()])
def test_a_panel_shows_metrics_that_exist(title: str, expression: str, legend: str) -> None:
    assert faults(expression) == []
    names = re.findall(r"\bjobwire_\w+", expression)
    labels = {label for name in names for label in EXPOSED[name][0]} | TARGET
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= labels


@over("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_about_metrics_that_exist(rule: dict[str, object]) -> None:
    expression = str(rule["expr"])
    assert faults(expression) == []
    labels = {
        label for name in re.findall(r"\bjobwire_\w+", expression) for label in EXPOSED[name][0]
    }
    assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= labels | TARGET
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}


def test_the_dashboard_is_well_formed() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in DASHBOARD["panels"]]
    taken = [
        (column, row)
        for x, y, w, h in places
        for column in range(x, x + w)
        for row in range(y, y + h)
    ]
    assert len(set(taken)) == len(taken)
    assert {column for column, _ in taken} == set(range(24))


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    expressions = [expression for _, expression, _ in panels()] + [rule["expr"] for rule in RULES]
    used = {
        re.sub("_(bucket|count|sum)$", "", name)
        for text in expressions
        for name in re.findall(r"\bjobwire_\w+", text)
    }
    unused = {metric.name for metric in (*FLEET, *WORKER)} - used
    assert unused == {"jobwire_scrape_duration_seconds", "jobwire_queues"}


def test_every_sample_is_of_a_metric_of_the_table() -> None:
    """And each has the labels that the table names."""
    suffixes = {"histogram": ("_bucket", "_count", "_sum")}
    known = {
        metric.name + suffix: {*metric.labels} | ({"le"} if suffix == "_bucket" else set())
        for metric in (*FLEET, *WORKER)
        for suffix in suffixes.get(metric.type, ("",))
    }
    assert {name: {*samples[0]} for name, samples in EXPOSED.items()} == known


def table(which: str) -> str:
    lines = ["| metric | type | labels | meaning |", "| --- " * 4 + "|"]
    for metric in FLEET if which == "fleet" else WORKER:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |")
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("which", ["fleet", "worker"])
def test_the_page_has_the_metrics_of_the_program(which: str) -> None:
    match = re.search(rf"<!-- metrics: {which}[^>]*-->\n\n((?:\|.*\n)+)", PAGE)
    assert match is not None
    assert match[1] == table(which)


def test_names_follow_the_conventions_of_prometheus() -> None:
    for metric in (*FLEET, *WORKER):
        assert re.fullmatch(r"jobwire_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") is (metric.type == "counter")
        assert metric.help.endswith(".")
        assert not set(metric.labels) & {"le", "quantile", *TARGET}
