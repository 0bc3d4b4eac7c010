"""Cases as data: reading, matchers, values with their exact spelling, obligations."""
