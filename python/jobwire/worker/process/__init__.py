"""The worker as a process: launcher, capsules, signals, supervisor."""
