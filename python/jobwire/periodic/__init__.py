"""Periodic jobs: cron lines, their ticks, and the entries in Redis, shared with sidekiq-cron."""
