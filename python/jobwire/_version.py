"""The version of the package and the directory of its code, for modules below the front."""

from __future__ import annotations

from os.path import dirname

__version__ = "0.1.0"

DIRECTORY = dirname(__file__)
