"""The web page: an ASGI application that shows and changes queues, jobs and processes."""
