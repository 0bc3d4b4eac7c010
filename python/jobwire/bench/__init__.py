"""The bench behind `jobwire bench`: measures a Redis and a machine, in its own namespace."""

from jobwire.bench.result import Result, Surroundings
from jobwire.bench.scenarios import Plan, run
from jobwire.bench.server import BenchFailed, BenchServer

__all__ = ["BenchFailed", "BenchServer", "Plan", "Result", "Surroundings", "run"]
