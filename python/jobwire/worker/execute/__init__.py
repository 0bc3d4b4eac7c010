"""Execution of jobs: threads, tasks, child processes, and the outcome of each job."""
