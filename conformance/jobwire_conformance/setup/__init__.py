"""A new adapter (`init`) and its examination (`doctor`)."""
