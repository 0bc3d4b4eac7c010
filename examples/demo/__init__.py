"""The demo: `make demo`, or `python -m examples.demo` in the checkout's directory."""
