"""Numbers for the monitoring that an operation has: Prometheus, probes of health, autoscalers.

`jobwire exporter` and the ports of `jobwire worker` serve them. A program that has a web server
serves them itself: `fleet_exposition(inspector.fleet())`, `worker_exposition(launcher.figures())`.

A name is imported at its first use, because every worker loads this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobwire.monitoring.exposition import Exposition, fleet_exposition, worker_exposition
    from jobwire.monitoring.figures import ClassFigures, Figures

__all__ = ["ClassFigures", "Exposition", "Figures", "fleet_exposition", "worker_exposition"]

if not TYPE_CHECKING:  # otherwise every unknown name would have a type

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "figures" if name.endswith("Figures") else "exposition"
        return getattr(import_module(f"{__name__}.{module}"), name)
