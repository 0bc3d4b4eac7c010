"""The protocol as values: no clock, no randomness, no socket, no thread."""
