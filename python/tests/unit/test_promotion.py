"""jobwire.protocol.promotion: payloads of due jobs, and the times of the polls."""

from __future__ import annotations

from jobwire.protocol.promotion import promoted
from jobwire.protocol.times import Generation
from tests.rows import over

NOW = 1_795_192_067.25

SCHEDULED = (
    b'{"retry":true,"queue":"low","class":"A","args":[1.50,12345678901234567890],'
    b'"jid":"j","created_at":1795191268274}'
)
RETRIED = (
    b'{"retry":true,"queue":"low","args":[],"class":"A","jid":"j","created_at":1795190000.5,'
    b'"enqueued_at":1795190001.5,"error_message":"m","error_class":"E","failed_at":1795190002.5,'
    b'"retry_count":0,"bid":{"x":[]}}'
)


@over(
    ("text", "generation", "queue", "moved"),
    [
        (SCHEDULED, 8, "low", SCHEDULED[:-1] + b',"enqueued_at":1795192067250}'),
        (SCHEDULED, 7, "low", SCHEDULED[:-1] + b',"enqueued_at":1795192067.25}'),
        (RETRIED, 8, "low", RETRIED.replace(b"1795190001.5", b"1795192067250")),
        (
            b'{"class":"A","x":1}',
            8,
            "default",
            b'{"retry":true,"queue":"default","class":"A","x":1,'
            b'"created_at":1795192067250,"enqueued_at":1795192067250}',
        ),
        (
            b'{"queue":"a:b|c","retry":null,"created_at":null,"at":5,"class":"A"}',
            7,
            "a:b|c",
            b'{"queue":"a:b|c","retry":null,"created_at":null,"class":"A","enqueued_at":1795192067.25}',
        ),
        (
            b'{"retry":false,"queue":"q","created_at":1}',
            8,
            "q",
            b'{"retry":false,"queue":"q","created_at":1,"enqueued_at":1795192067250}',
        ),
    ],
)
def test_promoted(text: bytes, generation: Generation, queue: str, moved: bytes) -> None:
    """SCHED-6, SCHED-17, SCHED-18, SCHED-19, PUSH-3: new enqueued_at, defaults, no at; PAY-7."""
    assert promoted(text, now=NOW, generation=generation) == (queue, moved)
