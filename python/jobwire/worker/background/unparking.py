"""Jobs of unknown classes, pushed back by the first worker that can run them. [X-CLASS-6]"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jobwire.protocol.keys import Keys
from jobwire.protocol.parking import unpark_known
from jobwire.protocol.wire import Op
from jobwire.text import counted

__all__ = ["Unparker"]

OVERLAP_S = 300.0  # for outcomes that are stored late, and clocks that differ

_log = logging.getLogger("jobwire.worker")


class Unparker:
    """Looks at all parked jobs once, and then at those that were parked since the last look.

    Args:
        keys: Key names.
        knows: Returns whether this process can run a payload.
        queues: Returns the queues that it serves.
    """

    def __init__(
        self,
        keys: Keys,
        knows: Callable[[Mapping[str, Any]], bool],
        queues: Callable[[], Collection[str]],
    ) -> None:
        self._keys = keys
        self._knows = knows
        self._queues = queues
        self._since = -math.inf  # epoch second

    def look(self) -> Op[None]:
        """Push the parked jobs of classes that were not registered where they were fetched."""
        began = time.time()
        pushed = yield from unpark_known(self._keys, self._knows, self._queues(), self._since)
        if pushed:
            _log.info("unparked %s of classes that this process can run", counted(pushed, "job"))
        self._since = began - OVERLAP_S
