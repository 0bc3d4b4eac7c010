"""jobwire.testing.periodic_ticks: a clock that is advanced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from jobwire import App, ConfigError, testing

BERLIN = ZoneInfo("Europe/Berlin")
YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def make() -> App:
    app = App()

    @app.periodic("0 3 * * *", tz="Europe/Berlin", args=["all"])
    @app.periodic("0 0 1 * *", name="monthly", args=["one"], date_as_argument=False)
    @app.job(name="Nightly")
    def nightly(region: str) -> None: ...

    @app.periodic("0 * * * *", enabled=False)
    @app.job(name="Off")
    def off() -> None: ...

    return app


def test_a_year_of_ticks() -> None:
    """X-CRON-10: in the order of time; the disabled entry has none."""
    ticks = list(testing.periodic_ticks(make(), YEAR, timedelta(days=365)))
    assert len(ticks) == 365 + 12
    assert [tick.at for tick in ticks] == sorted(tick.at for tick in ticks)
    assert {tick.name for tick in ticks} == {"Nightly", "monthly"}
    local = [tick.at.astimezone(BERLIN).hour for tick in ticks if tick.args == ["all"]]
    assert set(local) == {3}


def test_one_entry_between_two_times() -> None:
    """Its start counts, its end does not."""
    end = YEAR.replace(month=3)
    ticks = testing.periodic_ticks(make(), YEAR, end, name="monthly")
    assert [(tick.at, tick.job, tick.args) for tick in ticks] == [
        (YEAR, "Nightly", ["one"]),
        (YEAR.replace(month=2), "Nightly", ["one"]),
    ]


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="no periodic job 'nigthly'"):
        list(testing.periodic_ticks(make(), YEAR, timedelta(1), name="nigthly"))
    with pytest.raises(ConfigError, match="no time zone"):
        list(testing.periodic_ticks(make(), datetime(2026, 1, 1), timedelta(1)))


def test_definitions_are_checked_where_they_stand() -> None:
    """X-CRON-43: the line, the zone and the arguments."""
    app = App()

    @app.job(name="A")
    def job(number: int) -> None: ...

    with pytest.raises(ConfigError, match="is not supported"):
        app.periodic("daily?", args=[1])(job)
    with pytest.raises(ConfigError, match="time zone 'Nowhere'"):
        app.periodic("@daily", tz="Nowhere", args=[1])(job)
    with pytest.raises(TypeError, match="number"):
        app.periodic("@daily")(job)
    with pytest.raises(ConfigError, match=r"put it above @app.job"):
        app.periodic("@daily")(print)  # type: ignore[type-var]
    assert app.periodic_entries == []
