"""Mutants, which test the suite itself, and the table of the checks that killed them."""
