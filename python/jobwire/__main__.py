"""`python -m jobwire` is the `jobwire` command."""

from jobwire.cli import main

main()
