"""The start of an adapter: its skeleton, and the check of its parts."""
