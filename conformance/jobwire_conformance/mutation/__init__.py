"""Mutants: planted mistakes that the suite must find."""
