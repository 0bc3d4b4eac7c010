"""The performance targets of jobwire, measured and compared with Sidekiq and other job queues."""
