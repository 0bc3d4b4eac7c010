"""Real servers and real Sidekiq, for tests, benchmarks and the recording of fixtures."""
