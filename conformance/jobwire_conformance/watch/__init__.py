"""Watching an application: judges its commands without an adapter."""
