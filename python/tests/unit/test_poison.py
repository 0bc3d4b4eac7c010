"""jobwire.protocol.poison: the stored payload of a job that ended its processes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.protocol.payload import decode
from jobwire.protocol.poison import poisoned
from jobwire.protocol.times import Generation

NOW = 1_795_192_067.25
TEXT = b'{"retry":5,"queue":"q","class":"Killer","args":[1.50,12345678901234567890],"dead":false'
MESSAGE = b"not run again: 4 processes died while they held this job; the limit is 3"
ERROR = b',"error_message":"%s","error_class":"jobwire.PoisonPill"' % MESSAGE


@pytest.mark.parametrize(("generation", "stamp"), [(7, b"1795192067.25"), (8, b"1795192067250")])
def test_the_reason_is_in_the_payload(generation: Generation, stamp: bytes) -> None:
    """REL-10, GEN-1 and PAY-7: the fields of a failure, without a retry count."""
    fate = poisoned(decode(TEXT + b"}", "q"), 4, now=NOW, generation=generation)
    assert fate is not None
    assert fate.text == TEXT + ERROR + b',"failed_at":' + stamp + b"}"
    assert not fate.counted


def test_a_job_that_had_failed_before_keeps_the_time_of_its_first_failure() -> None:
    """REL-10: and the job keeps its retry count."""
    before = b',"failed_at":1795190000000,"retry_count":2'
    fate = poisoned(decode(TEXT + before + b"}", "q"), 4, now=NOW, generation=8)
    assert fate is not None
    assert fate.text == TEXT + before + ERROR + b',"retried_at":1795192067250}'


@given(recovered=st.integers(0, 50), limit=st.integers(0, 50))
def test_it_takes_more_recoveries_than_the_limit(recovered: int, limit: int) -> None:
    """REL-10: the limit itself is allowed."""
    job = decode(TEXT + b"}", "q")
    fate = poisoned(job, recovered, now=NOW, generation=8, limit=limit)
    assert (fate is not None) == (recovered > limit)
