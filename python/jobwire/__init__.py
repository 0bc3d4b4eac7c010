"""Client and worker for the Redis wire protocol that Sidekiq speaks."""

__version__ = "0.1.0"
