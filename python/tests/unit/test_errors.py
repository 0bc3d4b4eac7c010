"""jobwire.errors: the class tree, and the data of errors."""

from __future__ import annotations

import pickle

from jobwire import errors
from tests.rows import over

TREE = {
    "JobwireError": Exception,
    "ConfigError": errors.JobwireError,
    "BatchEnded": errors.JobwireError,
    "DuplicateJob": errors.JobwireError,
    "NotPermitted": errors.JobwireError,
    "PayloadError": errors.JobwireError,
    "InvalidJob": errors.PayloadError,
    "MalformedPayload": errors.PayloadError,
    "UnknownJob": errors.JobwireError,
    "InvalidArgument": errors.JobwireError,
    "JobFailed": errors.JobwireError,
    "OutputGap": errors.JobwireError,
    "ResultError": errors.JobwireError,
    "JobTimeout": errors.JobwireError,
    "JobCrashed": errors.JobwireError,
    "PoisonPill": errors.JobCrashed,
    "RedisTrouble": errors.JobwireError,
    "RedisUnreachable": errors.RedisTrouble,
    "RedisRefused": errors.RedisTrouble,
    "BufferFull": errors.RedisTrouble,
    "NoReply": errors.RedisTrouble,
    "MaybeWritten": errors.NoReply,
    "Shutdown": BaseException,
    "TryAgain": Exception,
    "Snooze": Exception,
    "Cancelled": BaseException,
}


def test_the_tree_is_as_drawn() -> None:
    assert {name: getattr(errors, name).__bases__[0] for name in errors.__all__} == TREE


@over(
    ("name", "builtin"),
    [
        ("ConfigError", ValueError),
        ("InvalidArgument", ValueError),
        ("InvalidJob", ValueError),
        ("MalformedPayload", ValueError),
        ("UnknownJob", LookupError),
        ("RedisUnreachable", ConnectionError),
        ("NoReply", ConnectionError),
        ("JobTimeout", TimeoutError),
    ],
)
def test_what_python_people_would_catch(name: str, builtin: type[Exception]) -> None:
    assert issubclass(getattr(errors, name), builtin)


def test_shutdown_passes_except_exception() -> None:
    """A job's `except Exception` must not swallow its interruption."""
    assert not issubclass(errors.Shutdown, Exception)


def test_a_payload_error_says_field_problem_and_rule() -> None:
    """PUSH-4: each of them is also an attribute."""
    error = errors.InvalidJob("PUSH-4", "tags", "is not a list")
    assert str(error) == "tags: is not a list"
    assert (error.rule, error.field, error.problem) == ("PUSH-4", "tags", "is not a list")
    assert str(errors.MalformedPayload("EXEC-3", "", "cut off")) == "cut off"


def test_a_payload_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(errors.InvalidJob("PUSH-4", "tags", "is not a list")))
    assert isinstance(error, errors.InvalidJob)
    assert (error.rule, error.field, error.problem) == ("PUSH-4", "tags", "is not a list")
    error.job_class = "HardJob"
    assert str(pickle.loads(pickle.dumps(error))) == "HardJob: tags: is not a list"


def test_what_an_isolated_job_raised_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(errors.JobFailed("app.Broken", "no", ["jobs.py:3:in 'f'"])))
    assert str(error) == "app.Broken: no"
    assert (error.backtrace, error.expected) == (["jobs.py:3:in 'f'"], False)
    error = pickle.loads(pickle.dumps(errors.JobFailed("app.Busy", "no", expected=True)))
    assert error.expected


def test_a_refusal_carries_its_code() -> None:
    """PUSH-8: the code is the first word of the server's error."""
    assert errors.RedisRefused("OOM command not allowed").code == "OOM"
    assert errors.RedisRefused("ERR").code == "ERR"


def test_trouble_names_no_jobs_by_default() -> None:
    """BULK-6: a single push has no earlier slices."""
    trouble = errors.RedisUnreachable("x")
    assert (trouble.written, trouble.unsure) == ((), ())
