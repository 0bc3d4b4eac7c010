"""docs/explanation/model.md: the results of the checks of the model, as a page."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.model.plan import CONFIGURATIONS, MISTAKES, NOT_MODELLED, PROPERTIES, digest
from tests.model.spin import Search

__all__ = ["PAGE", "fixed_parts", "numbers", "render"]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "model.md"

INTRODUCTION = """\
# A model of the reliable profile

Made by `.ci/release-check model --write`, not by hand. Digest of the model: `{digest}`.

[lua/model](../../lua/model/reliable.pml) describes [the reliable profile](../../spec/reliable.md)
in Promela: queue, private hash, lease, owners, outcomes, recovery, audit, promotion, the end of a
process, and the faults that can strike them. [Spin](https://spinroot.com) visits every state that
any order of these steps can reach, within small bounds, and checks the properties below in each. A
test runs some histories; a model checker runs all of them. The [fault runs](guarantees.md) test the
real program in return, because a model is not the program.

`.ci/release-check model` needs spin and gcc (`apt-get install spin gcc libc6-dev`) and minutes.

## Properties

| property | meaning |
| --- | --- |
{properties}
"""

LEFT_OUT = """\
## Limits of the model

- **Bounds.** Two processes, or three; one job, or two; two private entries of a process at a time;
  two faults, or three; one late message at a time. A mistake that needs more is not found.
- **Time.** An event that may happen at some time may happen at any time: the end of the lease of a
  dead process, a late message, the next audit. So the model does not show that a job is back within
  75 s [REL-17]. A process that lives loses its lease by a fault only.
- **Order.** A queue is a set. The tail of a queue and the order of several queues are left out.
- **Batches.** A fetch takes one job, and a message has one call. A process fetches again while jobs
  wait or run, so jobs do wait in it.
- **Payloads.** Two jobs never have the same bytes, and each retry makes new bytes.
- **Counts.** Returns, recoveries and lost outcomes [REL-7] [REL-12] [REL-23], so also the end of a
  job that ends its processes [REL-10].
- **Other parts.** Pushes, paused queues [REL-9], keys of a wrong type, a deleted `jobwire:owners`,
  iteration, inspection, and basic fetch.
- **A server that forgets.** Its state goes back to that of an earlier moment as a whole. Two
  servers that both take writes are left out.
- **The program.** `python/jobwire` is not checked against the model. `python/tests` does that with
  real servers: `test_reliable_stateful.py`, the fault runs, `.ci/release-check chaos`.
"""


def fixed_parts() -> list[str]:
    """Return the parts of the page that do not depend on a search."""
    properties = "\n".join(f"| `{name}` | {text} |" for name, text in PROPERTIES.items())
    scripts = "\n".join(f"- `{name}.lua`: {reason}" for name, reason in NOT_MODELLED.items())
    return [
        INTRODUCTION.format(digest=digest(), properties=properties),
        f"{LEFT_OUT}\nScripts without a step in the model:\n\n{scripts}\n",
    ]


def render(searches: Mapping[str, Search], found: Mapping[str, Search]) -> str:
    """Return the page.

    Args:
        searches: The result of each configuration, by its title.
        found: The result for each mistake, by its name.
    """
    top, end = fixed_parts()
    lines = [
        top,
        "## Searches",
        "",
        "No search found a violation. Together they reach every statement of the model.",
        "",
        "| bounds and faults | states | longest history |",
        "| --- | --- | --- |",
    ]
    for configuration in CONFIGURATIONS:
        result = searches[configuration.title]
        lines.append(f"| {configuration.title} | {result.states:,} | {result.depth} steps |")
    lines += [
        "",
        "- **crash**: the process is gone, with its memory",
        "- **silence**: the process lives and does not beat for as long as its lease",
        "- **lost reply**: the server carried out a call, and the process does not learn of it",
        "- **late message**: the server carries out a call at any time after its connection was "
        "lost:",
        "  a fetch, outcome, put back, beat, recovery or promotion",
        "- **stop**: the process gets TERM; a job that runs goes back and may run on",
        "- **a server that forgets**: a restart from a snapshot, or the promotion of a replica "
        "that lags",
        "",
        "## Planted mistakes",
        "",
        "Each mistake is compiled into the model. The search then has to find the named property "
        "violated;",
        "a mistake that is not found fails the run. The steps are those of the shortest history,",
        "or of the first one without an end; `.ci/release-check model NAME` prints it. The model",
        "found",
        "`OWNER_REMOVED_IN_TWO_STEPS` in jobwire itself, where it is repaired.",
        "",
        "| mistake | requirement | name | found by | steps |",
        "| --- | --- | --- | --- | --- |",
    ]
    for mistake in MISTAKES:
        steps = len(found[mistake.name].story)
        lines.append(
            f"| {mistake.text} | {mistake.requirement} | `{mistake.name}` "
            f"| `{mistake.found_by}` | {steps} |"
        )
    lines += ["", end.rstrip()]
    return "\n".join(lines) + "\n"


def numbers(page: str) -> dict[str, tuple[int, int]]:
    """Return states and longest history of each configuration of a page, by its title."""
    rows = re.findall(r"^\| (.+?) \| ([\d,]+) \| (\d+) steps \|$", page, re.MULTILINE)
    return {title: (int(states.replace(",", "")), int(depth)) for title, states, depth in rows}
