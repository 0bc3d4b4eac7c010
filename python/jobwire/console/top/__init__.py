"""The page in a terminal: `jobwire top`.

Queues, jobs and processes in a terminal, with the same actions as the web page. Needs textual, the
extra `jobwire[tui]`.
"""
