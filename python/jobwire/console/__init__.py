"""The views for people: operations, the web page, and the page in a terminal."""
