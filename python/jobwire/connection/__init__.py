"""Connections to Redis: the only place that knows redis-py, sockets and scripts."""
