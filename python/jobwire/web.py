"""The web page: an ASGI application that shows and changes queues, jobs and processes.

`WebApp` is mounted into an application, or served alone by `jobwire web`. It needs `jobwire[web]`.
"""

try:
    from jobwire.console.web.access import Authorize, Visitor
    from jobwire.console.web.app import WebApp
    from jobwire.console.web.redaction import Redact, hide_arguments
except ModuleNotFoundError as error:
    error.add_note("the web page needs: pip install 'jobwire[web]'")
    raise

__all__ = ["Authorize", "Redact", "Visitor", "WebApp", "hide_arguments"]
