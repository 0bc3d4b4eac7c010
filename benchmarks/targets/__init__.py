"""What jobwire aims at, measured beside real Sidekiq and other Python job queues."""
