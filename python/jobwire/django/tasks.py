"""A backend for Django's tasks: `django.tasks` of Django 6, or the package `django-tasks` for 5.2.

    TASKS = {"default": {"BACKEND": "jobwire.django.tasks.JobwireBackend"}}

A task is a job whose class is the dotted path of its function. Its positional arguments are those
of the job, so that another program can enqueue it. Keyword arguments travel in the field
`jw_kwargs`.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from traceback import format_exception
from typing import Any

import django
from django.conf import settings
from django.core import checks
from django.utils import timezone

from jobwire.application.app import App
from jobwire.application.current import current_job
from jobwire.application.producer import new_jid
from jobwire.django.project import app
from jobwire.protocol import times
from jobwire.protocol.normalize import Options
from jobwire.protocol.payload import Job

if django.VERSION >= (6, 0):
    from django.tasks import TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import TaskException
    from django.tasks.signals import task_enqueued, task_finished, task_started
else:
    from django_tasks import TaskContext, TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskError
    from django_tasks.exceptions import TaskException
    from django_tasks.signals import task_enqueued, task_finished, task_started

__all__ = ["JobwireBackend"]

KWARGS = "jw_kwargs"  # the payload field, absent if there are none
_OPTIONS = ("keep_result", "on_commit", "priority_queues")
_WORKER = f"{socket.gethostname()}:{os.getpid()}"

_tasks: dict[str, Any] = {}  # by wire class; the first task of each function


class JobwireBackend(BaseTaskBackend):
    """Enqueues tasks as jobs of the project's application, whose workers run them.

    Its `OPTIONS`:
        on_commit: True to write a task after the commit of the transaction around it. The default
            is False, as for the other backends: call `transaction.on_commit` yourself.
        priority_queues: Priority to queue, such as `{10: "urgent", -10: "low"}`: a task with a
            priority of 10 or more goes to `urgent`, one with -10 or less to `low`. Without it,
            tasks cannot have a priority.
        keep_result: Seconds for which the result of a task is kept for `app.client.result(id)`. It
            does not tell the task or its arguments, so `get_result` cannot be made of it.
    """

    supports_async_task = True
    supports_defer = True
    supports_get_result = False

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self._keep: float | None = self.options.get("keep_result")
        self._on_commit = bool(self.options.get("on_commit", False))
        self._queues: Mapping[int, str] = self.options.get("priority_queues", {})
        self.supports_priority = bool(self._queues)

    def check(self, **kwargs: Any) -> Iterator[Any]:
        """Report unknown options."""
        yield from super().check(**kwargs)
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
        at = None if task.run_after is None else _aware(task.run_after)
        jid = app.client.push(
            task.module_path,
            result.args,
            at=at,
            jid=result.id,
            fields={KWARGS: result.kwargs} if result.kwargs else None,
            on_commit=self._on_commit,
            **{**app.jobs[task.module_path].defaults, "queue": self._queue(task)},
        )
        if jid is None:
            raise TaskException(f"client middleware stopped the task {task.module_path}")
        task_enqueued.send(type(self), task_result=result)
        return result

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
            value = await task.func(*_started(task, args), **_kwargs())
            _succeeded(task)
            return value if keep_result else None

        define(arun)
    else:

        def run(*args: Any) -> Any:
            value = task.func(*_started(task, args), **_kwargs())
            _succeeded(task)
            return value if keep_result else None

        define(run)
    _tasks[name] = task


def _kwargs() -> dict[str, Any]:
    job = current_job()
    return {} if job is None else _kwargs_of(job)


def _started(task: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Tell of the start of a task, and return its arguments, with its context if it takes one."""
    job = current_job()
    if job is None:  # called as a function, outside of a worker
        return args
    result = _running(task, job)
    task_started.send(JobwireBackend, task_result=result)
    return (TaskContext(task_result=result), *args) if task.takes_context else args


def _succeeded(task: Any) -> None:
    if (job := current_job()) is not None:
        result = _running(task, job, TaskResultStatus.SUCCESSFUL, finished_at=timezone.now())
        task_finished.send(JobwireBackend, task_result=result)


@app.on_death
def _failed(job: Job, error: BaseException) -> None:
    """Tell of the end of a task that will not be tried again."""
    task = _tasks.get(job.class_name)
    if task is not None:
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        failure = TaskError(exception_class_path=path, traceback="".join(format_exception(error)))
        result = _running(
            task, job, TaskResultStatus.FAILED, finished_at=timezone.now(), errors=[failure]
        )
        task_finished.send(JobwireBackend, task_result=result)


def _running(task: Any, job: Job, status: Any = TaskResultStatus.RUNNING, **more: Any) -> Any:
    """Return the result of a task whose job a worker has started."""
    now = timezone.now()
    retries = job.get("retry_count")
    attempts = 1 if not isinstance(retries, int) else retries + 2  # the first failure counts 0
    return _result(
        task,
        job.jid or "",
        job.args,
        _kwargs_of(job),
        status=status,
        enqueued_at=_time(job.get("created_at")),
        started_at=now,
        last_attempted_at=now,
        worker_ids=[_WORKER] * attempts,
        **more,
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
    return TaskResult(task=task, id=identifier, args=args, kwargs=kwargs, **{**values, **more})


def _kwargs_of(job: Job) -> dict[str, Any]:
    kwargs = job.get(KWARGS)
    return kwargs if isinstance(kwargs, dict) else {}


def _time(stamp: object) -> datetime | None:
    seconds = times.read(stamp)
    if seconds is None:
        return None
    moment = datetime.fromtimestamp(seconds, UTC)
    return moment if settings.USE_TZ else timezone.make_naive(moment)


def _aware(moment: datetime) -> datetime:
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
