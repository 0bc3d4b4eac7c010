"""Servers, drivers and workers of one case, and the reaper that ends them."""
