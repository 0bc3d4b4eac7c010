"""The specification as data: its requirements, who cites them, and what a payload breaks.

SPEC.md is the only source; everything here is read from it. Nothing here needs Redis.
"""
