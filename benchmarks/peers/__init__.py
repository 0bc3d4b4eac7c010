"""jobwire beside others, on the same machine and the same server."""
