"""Clients of some implementations and workers of others, in pairs on one server."""
