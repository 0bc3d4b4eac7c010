"""The conformance suite for implementations of the protocol, whatever their language.

It sees every command on its way to Redis through proxies, makes the implementation do things
through a driver and workers, and holds the outcome against the requirements of SPEC.md. Nothing
here imports jobwire.
"""
