"""Parts that every other room of the worker uses: timings, periodic checks, outages."""
