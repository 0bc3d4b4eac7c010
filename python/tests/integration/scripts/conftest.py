"""Each server that the scripts are tried on, and a shell for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.debian_servers import SERVERS, DebianServer
from harness.servers import programs
from tests.integration.scripts.shell import Shell
from tests.server_fixtures import ServerFactory


@pytest.fixture(
    params=[
        *(pytest.param(program, id=os.path.basename(program)) for program in programs()),
        *(pytest.param(each, id=each.name, marks=pytest.mark.interop) for each in SERVERS),
    ]
)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each installed server, and with `make interop` those of three Debian releases."""
    if not isinstance(request.param, DebianServer):
        return str(request.param)
    if not request.param.program.exists():
        missing = f"no {request.param.program}: run `make interop`"
        if os.environ.get("JOBWIRE_REQUIRE_INTEROP") == "1":
            pytest.fail(missing)
        pytest.skip(missing)
    return request.param.launcher(tmp_path)


@pytest.fixture
def shell(program: str, server_factory: ServerFactory) -> Iterator[Shell]:
    made = Shell(server_factory(program=program))
    yield made
    made.redis.close()
