"""The command line of the project that tests jobwire.django."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django_site.settings")
    execute_from_command_line(sys.argv)
