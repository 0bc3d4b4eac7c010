"""The specification as data: its requirements, their citations, and verdicts on payloads.

SPEC.md is the only source: this package reads all its data from there. It does not need Redis.
"""
