"""The conformance suite for implementations of the protocol, whatever their language.

So far: a proxy that sees every command on its way to Redis and can break any of them. Nothing
here imports jobwire.
"""
