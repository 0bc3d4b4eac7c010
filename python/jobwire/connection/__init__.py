"""Connections to Redis: the only place that knows sockets and scripts."""
