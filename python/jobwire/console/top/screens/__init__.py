"""The screens of `jobwire top`, one module each."""
