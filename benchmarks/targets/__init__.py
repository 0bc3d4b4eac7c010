"""What jobwire aims at, measured beside real Sidekiq and other job queues."""
