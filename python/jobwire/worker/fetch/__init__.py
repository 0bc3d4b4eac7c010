"""Sources of jobs: reliable fetch, basic fetch, and the wait for new jobs."""
