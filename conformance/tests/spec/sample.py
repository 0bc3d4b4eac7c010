"""A small specification without faults, in which tests plant them."""

from __future__ import annotations

PAYLOAD = (
    '{"retry":true,"queue":"default","args":[1],"class":"A","jid":"9f2c1b7a4d3e5f60718293a4",'
    '"created_at":1786960000123,"enqueued_at":1786960000124}'
)
SPEC = f"""# A protocol

Version **1.0-draft.1**. A sample.

| Profile | Requires | Purpose |
| --- | --- | --- |
| client/core | | push, see `queue` |
| client/bulk | client/core | push many |
| worker/core | | run |
| worker/reliable | worker/core+robust, client/core | lose nothing |

```json
{PAYLOAD}
```

## 5 Keys

> **[KEY-1]** · client/core · interop · 6.4, 7.3 · since 1.0 · test: wire
> A client **MUST** push,
> at the head.

Why: so KEY-2 can work.

Seen in: 6 and 7.

```redis-cli
PING
# => PONG
```

> **[KEY-2]** · worker/core, client/bulk · interop · all · since 1.0 · test: none (no way to see it)
> A worker **SHOULD** fetch.

Why: it is a worker.

> **[PAY-1]** · client/core · interop · all · since 1.0 · retired 1.1 · test: state
> A payload **MAY** be odd.

Why: history.

> **[REL-1]** · worker/reliable · robust · all · since 1.0 · test: state
> A fetch **MAY** be one step.

Why: nothing is lost.

Seen in: 8.

## Appendix A: where Sidekiq differs

| Id | Does not hold in |
| --- | --- |
| REL-1 | 6.4.1, 7.3.2 |

## Appendix B

| Script | KEYS | Returns | Complexity |
| --- | --- | --- | --- |
| `fetch` | queue | a job | O(1) |

A crash of the caller leaves
nothing.

| Script | Acts if | Effect |
| --- | --- | --- |
| `fetch` | there is one | takes it |
"""
RELEASED = SPEC.replace("1.0-draft.1", "1.0")


def edited(*edits: tuple[str, str], text: str = SPEC) -> str:
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


REWORDED = ("at the head", "at the left end")
