"""What tests, benchmarks and the recording of fixtures share: real servers and real Sidekiq."""
