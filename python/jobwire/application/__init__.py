"""The application: job types, clients, middleware and settings of the worker."""
