"""Sources of a worker's settings: command line, environment, file, default."""

from jobwire.settings.resolve import Settings, Value, resolve
from jobwire.settings.table import OTHER_VARIABLES, SETTINGS, Setting, written

__all__ = ["OTHER_VARIABLES", "SETTINGS", "Setting", "Settings", "Value", "resolve", "written"]
