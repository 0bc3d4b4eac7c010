"""The conformance suite for implementations of the protocol in any language.

A driver and workers make the implementation act. Proxies record every command on its way to Redis.
The suite compares the outcome with the requirements of SPEC.md. It never imports jobwire.
"""

__version__ = "0.1.0"
