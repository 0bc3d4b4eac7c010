"""A run of cases: steps, checks, crash matrix, verdicts, frozen sets."""
