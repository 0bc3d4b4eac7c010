"""Bytes between a process and Redis: RESP, the proxy, faults, the suite's own connection."""
