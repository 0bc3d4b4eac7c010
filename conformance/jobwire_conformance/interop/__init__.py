"""Clients of some implementations with workers of others, in pairs."""
