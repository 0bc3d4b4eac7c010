"""The connection between an implementation and Redis: RESP, proxy and faults."""
