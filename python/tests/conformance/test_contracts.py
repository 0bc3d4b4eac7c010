"""The contracts of the canonical scripts, as the suite judges calls by them."""

from __future__ import annotations

import pytest

from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.reliable import script_done, script_fetch, script_kill, script_retry
from jobwire.protocol.wire import Script
from jobwire_conformance.data import scripts
from jobwire_conformance.judge import contracts

KEYS = Keys()
ME = "app-1:4711:0123456789ab"
DAY = "2026-11-20"
CALLS = [
    script_fetch(KEYS, ME, ["default", "a:b"], count=3, sequence=17),
    script_done(KEYS, ME, ["1:default", "2:a:b"], failed=False, day=DAY),
    script_retry(KEYS, ME, [("1:default", 1_795_192_067.25, b"{}\n")], day=DAY),
    script_kill(KEYS, ME, "1:default", b"{", DeadSetLimits(1_795_192_067.25), day=DAY),
]


def fault(call: Script, *, keys: int = 0, arguments: list[str] | None = None) -> str | None:
    """Judge a call, without its last `keys` keys."""
    texts = [each.decode() if isinstance(each, bytes) else str(each) for each in call.args]
    names = [str(key) for key in call.keys]
    return contracts.fault(
        call.name, names[: len(names) - keys], texts if arguments is None else arguments
    )


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_calls_of_the_reference_keep_the_contracts(call: Script) -> None:
    """LUA-4: and a call with a key less, or without arguments, does not."""
    assert fault(call) is None
    assert fault(call, keys=1) is not None or call.name == "fetch"
    assert fault(call, arguments=["x"]) is not None


def test_every_script_has_a_contract() -> None:
    """LUA-4: and one for no other script."""
    for name in scripts():
        assert contracts.fault(name, [], []) is not None
    with pytest.raises(KeyError):
        contracts.fault("other", [], [])


def test_the_first_wrong_value_is_named() -> None:
    done = CALLS[1]
    assert fault(done, arguments=["5", "0", "2", "1:a"]) == "ARGV[3] = 2"
    assert fault(done, arguments=["5", "0", "1", "default"]) == "ARGV[4] = default"
