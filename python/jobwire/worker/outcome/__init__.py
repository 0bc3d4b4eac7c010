"""Outcomes of jobs, on their way into Redis."""
