"""The client and the inspector of jobwire as a driver of the conformance suite."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from typing import Any

import jobwire
from jobwire.application.call import Call
from jobwire.application.delivery import Transport
from jobwire.errors import ConfigError, InvalidJob, JobwireError, NoReply
from jobwire.inspect import Entry, Filter, Inspector
from jobwire.inspect.entry import entry
from jobwire.periodic import schedule
from jobwire.protocol import periodic
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic_entry import PeriodicEntry, StoredEntry
from jobwire.protocol.progress import RubyStatus

OPTIONS = (
    *("queue", "retry", "backtrace", "dead", "retry_for", "retry_queue", "tags", "log_level"),
    "pool",
)


GENERATION: Any = 7 if os.environ.get("JOBWIRE_GENERATION") == "7" else 8


class Stopped(JobwireError):
    """Middleware has stopped a push."""


def route(item: dict[str, Any], call_next: Any) -> Any:
    """Change or stop a routed job, as its first argument says. A client middleware."""
    if item["class"] == "JobwireRouted":
        changes = dict(item["args"][0])
        if changes.pop("stop", False):
            return None
        item.update(changes)
    return call_next()


def native(value: Any) -> Any:
    """Return the value, or an object that JSON does not have for the text `native`."""
    return object() if value == "native" else value


def halved(value: Any) -> Any:
    """Return the value, with half of a surrogate pair in place of each text `half`."""
    if isinstance(value, dict):
        return {halved(key): halved(part) for key, part in value.items()}
    if isinstance(value, list):
        return [halved(part) for part in value]
    return "a\ud800b" if value == "half" else value


def job_of(request: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the job of a request."""
    job = dict(request["job"])
    return halved(job) if job.get("class") == "JobwireHalf" else job


def push(client: jobwire.Client, request: dict[str, Any]) -> dict[str, Any]:
    """Push the job of a request; return its id."""
    job = job_of(request)
    name, args, jid = job.pop("class", None), job.pop("args", None), job.pop("jid", None)
    if name == "JobwireNative":
        args = [native(value) for value in args]
    options = {option: job.pop(option) for option in OPTIONS if option in job}
    if "in" in request:
        return {"jid": client.push_in(request["in"], name, args, jid=jid, fields=job, **options)}
    if "expires_in" in request:
        options["expires_in"] = request["expires_in"]
    if "unique" in request:
        options["unique"] = request["unique"]
    if "limit" in request:
        options["limit"] = jobwire.Limit(**request["limit"])
    if "next" in request:
        following = [
            Call(
                each["class"],
                each["args"],
                {"queue": each.get("queue", "default")},
                takes=tuple(each.get("takes", ())),
            )
            for each in request["next"]
        ]
        jids = client.push_chain([Call(name, args, options, job), *following])
        return {"jid": jids and next(iter(jids))}
    at = {"at": request["at"]} if "at" in request else {}
    jid = client.push(name, args, jid=jid, fields=job, **options, **at)
    if jid is None:
        raise Stopped("stopped by middleware")
    return {"jid": jid}


def push_bulk(client: jobwire.Client, request: dict[str, Any]) -> dict[str, Any]:
    """Push the jobs of a request; return their ids."""
    job = job_of(request)
    name = job.pop("class", None)
    all_args = halved(request["args"]) if name == "JobwireHalf" else request["args"]
    options = {option: job.pop(option) for option in OPTIONS if option in job}
    if "unique" in request:
        options["unique"] = request["unique"]
    times = {field: request[field] for field in ("at", "spread_interval") if field in request}
    return {"jids": client.push_bulk(name, all_args, fields=job, **options, **times)}


def bytes_of(member: Any) -> bytes:
    """Return the bytes of a member in a request."""
    return member.encode() if isinstance(member, str) else base64.b64decode(member["base64"])


def shown(job: Entry) -> dict[str, Any]:
    """Return a job in the form of an answer."""
    try:
        member: Any = job.payload.decode()
    except UnicodeDecodeError:
        member = {"base64": base64.b64encode(job.payload).decode()}
    return {
        "member": member,
        **({} if job.score is None else {"score": job.score}),
        "jid": job.jid,
        "class": job.display_class or None,
        "created_at": job.created_at,
        "enqueued_at": job.enqueued_at,
        "failed_at": job.failed_at,
        "retried_at": job.retried_at,
        "error_backtrace": job.error_backtrace,
    }


def inspect(inspector: Inspector, request: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a request `inspect`."""
    name = request.get("name", "")
    match request["what"]:
        case "queues":
            queues = inspector.queues()
            return {"queues": {q.name: {"size": q.size, "latency": q.latency} for q in queues}}
        case "queue":
            return {"jobs": [shown(job) for job in inspector.jobs(name)]}
        case "set":  # the inspector returns the highest score first
            return {"jobs": [shown(job) for job in inspector.entries(name)][::-1]}
        case "find":
            job = inspector.find(name, request["jid"])
            return {"jobs": [] if job is None else [shown(job)]}
        case "stats":
            stats = inspector.stats()
            totals = {"processed": stats.processed, "failed": stats.failed}
            sizes = {"schedule": stats.scheduled, "retry": stats.retries, "dead": stats.dead}
            return {**totals, **sizes}
        case "periodic":
            keys = Keys(os.environ.get("JOBWIRE_NAMESPACE", ""))
            entries = inspector.redis.run(periodic.read_entries(keys))
            shown_entries = map(listed, sorted(entries, key=lambda stored: stored.name))
            return {"entries": [*shown_entries]}
        case "metrics":
            totals_of = {name: job.total for name, job in inspector.activity().jobs.items()}
            return {
                "metrics": {
                    name: {"p": total.count, "f": total.failed, "ms": total.ms}
                    for name, total in totals_of.items()
                }
            }
        case "processes":
            fields = ("identity", "concurrency", "busy", "quiet")
            processes = inspector.processes()
            return {"processes": [{f: getattr(p, f) for f in fields} for p in processes]}
        case _:
            return {
                "work": [
                    {
                        "identity": work.identity,
                        "jid": work.job.jid,
                        "queue": work.queue or None,
                        "run_at": work.run_at,
                        "progress": work.progress
                        and {f: getattr(work.progress, f) for f in ("done", "total", "note")},
                    }
                    for work in inspector.works()
                ]
            }


def listed(stored: StoredEntry) -> dict[str, Any]:
    """Return a periodic entry in the form of an answer."""
    return {
        "name": stored.name,
        "namespace": stored.namespace,
        "class": stored.job or None,
        "cron": stored.cron or None,
        "enabled": stored.enabled,
        "args": stored.args,
    }


def defined(given: dict[str, Any]) -> PeriodicEntry:
    """Return the definition of a periodic entry in a request."""
    named = {"class": "job"}
    options = {name: given[name] for name in OPTIONS if name in given}
    members = {named.get(name, name): given[name] for name in given if name not in OPTIONS}
    return schedule.check(PeriodicEntry(**members, options=options))


def change_periodic(inspector: Inspector, keys: Keys, request: dict[str, Any]) -> None:
    """Carry out a request `periodic`."""
    run = inspector.redis.run
    action = request["action"]
    if action == "save":
        run(schedule.load(keys, [defined(request["entry"])], schedule=""))
        return
    if action == "load":
        entries = [defined(given) for given in request["entries"]]
        run(schedule.load(keys, entries, schedule=request["schedule"]))
        return
    (stored,) = [s for s in run(periodic.read_entries(keys)) if s.name == request["name"]]
    if action == "remove":
        run(periodic.remove(keys, stored))
    elif action == "enqueue":
        now = run(periodic.server_time())
        payload = stored.payload(jid=secrets.token_hex(12), now=now, generation=GENERATION)
        run(periodic.run_now(keys, stored, payload, now=now))
    else:
        run(schedule.set_enabled(keys, stored, enabled=action == "enable"))


def act(inspector: Inspector, request: dict[str, Any]) -> None:
    """Carry out a request `act`."""
    action = request["action"]
    if "member" in request:
        place = request["set"] if "set" in request else f"queue:{request['queue']}"
        job = entry(bytes_of(request["member"]), place)
        arguments = [request["at"]] if action == "reschedule" else []
        getattr(inspector, action)(job, *arguments)
    elif action == "clear" and "queue" in request:
        inspector.clear_queue(request["queue"])
    elif action == "clear":
        inspector.clear(request["set"])
    elif action.endswith("_all"):
        only = Filter(class_name=request.get("class"))
        inspector.sweep(request["set"], action.removesuffix("_all"), only=only)
    elif action == "cancel":
        inspector.cancel(request["jid"])
    else:  # quiet, stop, dump
        getattr(inspector, action)(request["identity"])


def answer(client: jobwire.Client, inspector: Inspector, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request."""
    match request["op"]:
        case "hello":
            ops = ["push", "push_bulk", "inspect", "act", "periodic"]
            return {"ok": {"driver": 1, "version": jobwire.__version__, "ops": ops}}
        case "push":
            return {"ok": push(client, request)}
        case "push_bulk":
            return {"ok": push_bulk(client, request)}
        case "inspect":
            return {"ok": inspect(inspector, request)}
        case "act":
            act(inspector, request)
            return {"ok": {}}
        case "periodic":
            keys = Keys(os.environ.get("JOBWIRE_NAMESPACE", ""))
            change_periodic(inspector, keys, request)
            return {"ok": {}}
        case "bye":
            return {"ok": {}}
    return {"unsupported": True}


def failure(error: JobwireError) -> dict[str, Any]:
    """Return the answer for a push that raised an error."""
    # Earlier slices of a bulk may be written, even if this slice is not.
    written = getattr(error, "written", None)
    maybe = isinstance(error, NoReply) or bool(written)
    kind = "unknown" if maybe and not isinstance(error, InvalidJob | ConfigError) else "rejected"
    error_member: dict[str, Any] = {"kind": kind, "message": str(error)}
    if written:
        error_member["written"] = list(written)
    return {"error": error_member}


def main() -> None:
    """Answer requests until `bye` or the end of standard input."""
    if "JOBWIRE_MUTATE" in os.environ:
        import mistakes

        mistakes.make(os.environ["JOBWIRE_MUTATE"])
    given = os.environ["JOBWIRE_GENERATION"]
    generation: Any = given if given == "auto" else int(given)
    timeout = float(os.environ.get("JOBWIRE_TIMEOUT", "5"))
    url = os.environ["JOBWIRE_REDIS_URL"]
    shared: Any = {
        "generation": generation,
        "namespace": os.environ.get("JOBWIRE_NAMESPACE", ""),
    }
    transport = Transport()
    transport.ruby_status = RubyStatus(1800, frozenset(["JobwireProgress"]))
    with (
        jobwire.Client(
            url, middleware=[route], timeout=timeout, transport=transport, **shared
        ) as client,
        Inspector(url, **shared) as inspector,
    ):
        for line in sys.stdin:
            request = json.loads(line)
            try:
                result = answer(client, inspector, request)
            except JobwireError as error:
                result = failure(error)
            except Exception as error:  # noqa: BLE001  a crash would be the adapter's fault
                result = {"error": {"kind": "unknown", "message": repr(error)}}
            sys.stdout.write(json.dumps({"id": request["id"], **result}) + "\n")
            sys.stdout.flush()
            if request["op"] == "bye":
                break


if __name__ == "__main__":
    main()
