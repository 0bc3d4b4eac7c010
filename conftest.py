"""The plugins of all tests."""

# The first measures, so it comes before the ones that import jobwire.
pytest_plugins = [
    "tests.protocol_coverage",
    "tests.tiers",
    "tests.garbage",
    "tests.server_fixtures",
]
