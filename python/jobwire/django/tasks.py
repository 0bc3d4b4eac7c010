"""A backend for Django's tasks: `django.tasks` of Django 6, or the package `django-tasks` for 5.2.

    TASKS = {"default": {"BACKEND": "jobwire.django.tasks.JobwireBackend"}}

A task is a job whose class is the dotted path of its function. Its positional arguments are those
of the job, so that another program can enqueue it. Keyword arguments travel in the field
`jw_kwargs`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any

import django
from django.conf import settings
from django.core import checks
from django.utils import timezone
from msgspec import structs

from jobwire.application.app import App
from jobwire.application.current import current_job
from jobwire.application.producer import new_jid
from jobwire.django.project import app
from jobwire.django.records import (
    MAX_TRACEBACK,
    WAIT_S,
    Attempt,
    Change,
    Known,
    Problem,
    Record,
    Records,
)
from jobwire.errors import Snooze
from jobwire.protocol import times
from jobwire.protocol.normalize import Options
from jobwire.protocol.payload import Job
from jobwire.protocol.results import keep_of, keep_seconds
from jobwire.protocol.retry import scrub

if django.VERSION >= (6, 0):
    from django.tasks import TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import TaskException, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    from django_tasks import TaskContext, TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskError
    from django_tasks.exceptions import TaskException, TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

__all__ = ["JobwireBackend"]

KWARGS = "jw_kwargs"  # the payload field, absent if there are none
_OPTIONS = ("keep_result", "on_commit", "priority_queues")
_WORKER = f"{socket.gethostname()}:{os.getpid()}"

# Classes that Django has for outcomes of jobwire without an error of the task.
_ERRORS = {"cancelled": "jobwire.errors.Cancelled", "expired": "builtins.TimeoutError"}

_tasks: dict[str, Any] = {}  # by wire class; the first task of each function
_records = Records(app)


class JobwireBackend(BaseTaskBackend):
    """Enqueues tasks as jobs of the project's application, whose workers run them.

    Its `OPTIONS`:
        on_commit: True to write a task after the commit of the transaction around it. The default
            is False, as for the other backends: call `transaction.on_commit` yourself.
        priority_queues: Priority to queue, such as `{10: "urgent", -10: "low"}`: a task with a
            priority of 10 or more goes to `urgent`, one with -10 or less to `low`. Without it,
            tasks cannot have a priority.
        keep_result: Seconds for which the result of a task is kept after its end. Without it,
            `get_result` raises `NotImplementedError`.
    """

    supports_async_task = True
    supports_defer = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self._keep: float | None = self.options.get("keep_result")
        self._on_commit = bool(self.options.get("on_commit", False))
        self._queues: Mapping[int, str] = self.options.get("priority_queues", {})
        self.supports_priority = bool(self._queues)
        self.supports_get_result = bool(self._keep)

    def check(self, **kwargs: Any) -> Iterator[Any]:
        """Report unknown options, and those that the application cannot follow."""
        yield from super().check(**kwargs)
        if self._keep and app.shards:
            yield checks.Error(
                f"TASKS[{self.alias!r}]['OPTIONS'] has keep_result, and JOBWIRE has SHARDS",
                hint="Results of tasks are kept in one Redis. Leave one of both out.",
                id="jobwire.E006",
            )
        for name in self.options.keys() - set(_OPTIONS):
            yield checks.Error(
                f"TASKS[{self.alias!r}]['OPTIONS'] has the unknown key {name!r}",
                hint=f"The keys are {', '.join(_OPTIONS)}.",
                id="jobwire.E005",
            )

    def validate_task(self, task: Any) -> None:
        """Refuse a task that cannot run, and define the job of a new one."""
        super().validate_task(task)
        _define(app, task, self._keep)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Push a task; its result is ready, and has the id of the job.

        Raises:
            TaskException: Client middleware stopped the job.
            InvalidJob, RedisTrouble: See `Client.push`.
        """
        self.validate_task(task)
        result = _result(task, new_jid(), args, kwargs, enqueued_at=timezone.now())
        options = {**app.jobs[task.module_path].defaults, "queue": self._queue(task)}
        if self._keep is not None:
            options["keep_result"] = self._keep
        at = None if task.run_after is None else _aware(task.run_after)
        if keep := keep_seconds(options.get("keep_result")):
            wait = 0.0 if at is None else at.timestamp() - time.time()
            known = _known(task, result.args, result.kwargs, result.enqueued_at)
            _records.write(Change(result.id, max(WAIT_S, keep) + max(0, int(wait)), known))
        jid = app.client.push(
            task.module_path,
            result.args,
            at=at,
            jid=result.id,
            fields={KWARGS: result.kwargs} if result.kwargs else None,
            on_commit=self._on_commit,
            **options,
        )
        if jid is None:
            raise TaskException(f"client middleware stopped the task {task.module_path}")
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task, which another process may have enqueued.

        Raises:
            NotImplementedError: The backend has no option `keep_result`.
            TaskResultDoesNotExist: There is no such task, its result has expired, or this project
                does not define it.
            RedisTrouble: It could not be read.
        """
        if not self.supports_get_result:
            return super().get_result(result_id)
        jid = str(result_id)
        record = _records.read(jid)
        task = None if record is None else _tasks.get(record.known.path)
        if record is None or task is None:
            raise TaskResultDoesNotExist(jid)
        return _recorded(record, task, jid)

    def _queue(self, task: Any) -> str:
        """Return the queue for the priority of a task."""
        reached = [
            level
            for level in self._queues
            if (0 < level <= task.priority) or (task.priority <= level < 0)
        ]
        name: str = self._queues[max(reached, key=abs)] if reached else task.queue_name
        return name


def _define(app: App, task: Any, keep_result: float | None) -> None:
    """Define the job of a task, at the first task with this function."""
    name = task.module_path
    if name in _tasks:
        return
    # `using` makes tasks of the same function with other settings; the payload has its queue.
    options: Options = {"queue": task.queue_name}
    if keep_result is not None:
        options["keep_result"] = keep_result
    define = app.job(name=name, on_commit=False, **options)
    if iscoroutinefunction(task.func):

        async def arun(*args: Any) -> Any:
            attempt = _attempt(task)
            if attempt is None:
                return await task.func(*args)
            await _awrite(attempt.begin())
            try:
                value = await task.func(*attempt.arguments(args), **attempt.kwargs)
            except (Exception, SystemExit) as error:
                await _awrite(attempt.fail(error))
                raise
            await _awrite(attempt.succeed(value))
            return attempt.value

        define(arun)
    else:

        def run(*args: Any) -> Any:
            attempt = _attempt(task)
            if attempt is None:
                return task.func(*args)
            _write(attempt.begin())
            try:
                value = task.func(*attempt.arguments(args), **attempt.kwargs)
            except (Exception, SystemExit) as error:
                _write(attempt.fail(error))
                raise
            _write(attempt.succeed(value))
            return attempt.value

        define(run)
    _tasks[name] = task


def _write(change: Change | None) -> None:
    if change is not None:
        _records.write(change)


async def _awrite(change: Change | None) -> None:
    if change is not None:
        await _records.awrite(change)


def _attempt(task: Any) -> _Attempt | None:
    """Return the attempt at a task that a worker makes; None for a call outside of a worker."""
    job = current_job()
    return None if job is None else _Attempt(task, job)


class _Attempt:
    """One execution of a task, with its signals and the changes of its record.

    Attributes:
        kwargs: The keyword arguments.
        value: The return value of the job; None without `keep_result`.
    """

    def __init__(self, task: Any, job: Job) -> None:
        self.kwargs = _kwargs_of(job)
        self.value: Any = None
        self._task = task
        self._job = job
        self._jid = job.jid or ""
        self._keep = _keep(task, job)
        self._number = _attempts(job)
        self._record = Attempt(_WORKER, timezone.now())
        self._result = _running(task, job)

    def begin(self) -> Change | None:
        task_started.send(JobwireBackend, task_result=self._result)
        known = _known(self._task, self._job.args, self.kwargs, self._result.enqueued_at)
        return self._change(WAIT_S, self._record, known)

    def arguments(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if not self._task.takes_context:
            return args
        return (TaskContext(task_result=self._result), *args)

    def fail(self, error: BaseException) -> Change | None:
        # A job that was put off has not failed, and makes the same attempt later.
        problem = None if isinstance(error, Snooze) else _problem(error)
        return self._change(WAIT_S, structs.replace(self._record, ended=True, problem=problem))

    def succeed(self, value: Any) -> Change | None:
        ended = {"finished_at": timezone.now()}
        record = self._record
        if not self._keep:
            self._tell(TaskResultStatus.SUCCESSFUL, **ended)
            return None
        try:
            self.value = normalize_json(value)
        except (TypeError, ValueError) as error:
            # The job is done; it is stored as one whose value cannot be kept. [X-RESULT-5]
            self.value = value
            record = structs.replace(record, ended=True, problem=_problem(error))
            self._tell(TaskResultStatus.FAILED, errors=[_error(error)], **ended)
        else:
            self._tell(TaskResultStatus.SUCCESSFUL, return_value=self.value, **ended)
        return self._change(self._keep, record)

    def _tell(self, status: Any, **more: Any) -> None:
        result = _running(self._task, self._job, status, **more)
        task_finished.send(JobwireBackend, task_result=result)

    def _change(self, seconds: int, record: Attempt, known: Known | None = None) -> Change | None:
        if not self._keep:
            return None
        return Change(self._jid, max(seconds, self._keep), known, (self._number, record))


@app.on_death
def _failed(job: Job, error: BaseException) -> None:
    """Tell of the end of a task that will not be tried again."""
    task = _tasks.get(job.class_name)
    if task is not None:
        if keep := _keep(task, job):
            _records.write(Change(job.jid or "", keep))
        result = _running(
            task, job, TaskResultStatus.FAILED, finished_at=timezone.now(), errors=[_error(error)]
        )
        trace = error.__traceback__
        try:
            raise error  # because Django logs the exception that is being handled
        except BaseException:  # noqa: BLE001 - it is the one raised above
            task_finished.send(JobwireBackend, task_result=result)
        finally:
            error.__traceback__ = trace


def _keep(task: Any, job: Job) -> int:
    """Return for how many seconds the result of a job is kept; 0 if it is not."""
    return keep_of(job, keep_seconds(app.jobs[task.module_path].defaults.get("keep_result")))


def _attempts(job: Job) -> int:
    """Return the number of the attempt that a job makes, from 1."""
    retries = job.get("retry_count")
    return 1 if not isinstance(retries, int) else retries + 2  # the first failure counts 0


def _known(task: Any, args: Any, kwargs: Any, enqueued_at: datetime | None) -> Known:
    return Known(
        task.module_path,
        task.backend,
        task.queue_name,
        args,
        kwargs,
        task.priority,
        task.run_after,
        enqueued_at,
    )


def _problem(error: BaseException) -> Problem:
    path = f"{type(error).__module__}.{type(error).__qualname__}"
    return Problem(path, scrub("".join(format_exception(error))[-MAX_TRACEBACK:]))


def _error(error: BaseException) -> Any:
    problem = _problem(error)
    return TaskError(exception_class_path=problem.path, traceback=problem.traceback)


def _running(task: Any, job: Job, status: Any = TaskResultStatus.RUNNING, **more: Any) -> Any:
    """Return the result of a task whose job a worker has started."""
    now = timezone.now()
    return _result(
        task,
        job.jid or "",
        job.args,
        _kwargs_of(job),
        **{
            "status": status,
            "enqueued_at": _time(job.get("created_at")),
            "started_at": now,
            "last_attempted_at": now,
            "worker_ids": [_WORKER] * _attempts(job),
            **more,
        },
    )


def _recorded(record: Record, task: Any, jid: str) -> Any:
    """Return the result of a task from its record."""
    known, attempts, ended = record.known, record.attempts, record.result
    changes = {"priority": known.priority, "queue_name": known.queue, "backend": known.backend}
    if any(getattr(task, name) != value for name, value in changes.items()) or known.run_after:
        task = replace(task, **changes, run_after=known.run_after)
    errors = [each.problem for each in attempts if each.problem is not None]
    running_since = None
    if attempts and not attempts[-1].ended:
        running_since = attempts[-1].started_at
    if ended is not None and (
        not ended.final or (running_since is not None and running_since.timestamp() > ended.at)
    ):
        ended = None  # a retry waits or runs, or a person retried a job that was dead
    finished: dict[str, Any] = {}
    if ended is not None:
        finished = {"finished_at": _moment(ended.at)}
        if ended.outcome == "done" and ended.problem is None:
            finished |= {"status": TaskResultStatus.SUCCESSFUL, "return_value": ended.value}
        else:
            finished["status"] = TaskResultStatus.FAILED
            if not errors:  # its code did not fail: it was cancelled, say, or came too late
                path = ended.error_class or _ERRORS.get(ended.outcome, "builtins.TypeError")
                text = ended.error_message or ended.problem or f"the task is {ended.outcome}"
                errors = [Problem(path, text)]
    started: dict[str, Any] = {}
    if attempts:
        started = {
            "status": TaskResultStatus.RUNNING if running_since else TaskResultStatus.READY,
            "started_at": attempts[0].started_at,
            "last_attempted_at": attempts[-1].started_at,
            "worker_ids": [each.worker for each in attempts],
        }
    return _result(
        task,
        jid,
        known.args,
        known.kwargs,
        **{
            "enqueued_at": known.enqueued_at,
            "errors": [
                TaskError(exception_class_path=each.path, traceback=each.traceback)
                for each in errors
            ],
            **started,
            **finished,
        },
    )


def _result(task: Any, identifier: str, args: Any, kwargs: Any, **more: Any) -> Any:
    values = {
        "status": TaskResultStatus.READY,
        "enqueued_at": None,
        "started_at": None,
        "finished_at": None,
        "last_attempted_at": None,
        "backend": task.backend,
        "errors": [],
        "worker_ids": [],
    }
    value = more.pop("return_value", None)
    result = TaskResult(task=task, id=identifier, args=args, kwargs=kwargs, **{**values, **more})
    object.__setattr__(result, "_return_value", value)  # as Django's own backends do
    return result


def _kwargs_of(job: Job) -> dict[str, Any]:
    kwargs = job.get(KWARGS)
    return kwargs if isinstance(kwargs, dict) else {}


def _time(stamp: object) -> datetime | None:
    seconds = times.read(stamp)
    return None if seconds is None else _moment(seconds)


def _moment(seconds: float) -> datetime:
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment if settings.USE_TZ else timezone.make_naive(moment)


def _aware(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
