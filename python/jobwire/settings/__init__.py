"""Where a worker's settings come from: command line, environment, file, default."""

from jobwire.settings.effective import Settings, Value, resolve
from jobwire.settings.table import SETTINGS, Setting

__all__ = ["SETTINGS", "Setting", "Settings", "Value", "resolve"]
