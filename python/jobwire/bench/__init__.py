"""What `jobwire bench` does: measure a Redis and a machine, in a namespace of its own."""

from jobwire.bench.result import Result, Surroundings
from jobwire.bench.scenarios import Plan, run
from jobwire.bench.stage import BenchFailed, BenchStage

__all__ = ["BenchFailed", "BenchStage", "Plan", "Result", "Surroundings", "run"]
