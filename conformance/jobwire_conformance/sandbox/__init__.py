"""Sandboxes: the servers, proxies and processes that a case runs against."""
