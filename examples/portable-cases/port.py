"""The only part of the runner that knows the implementation: here, jobwire's client."""

import jobwire
from jobwire.errors import InvalidJob, JobwireError, NoReply

CLAIMS = {"client/core", "client/bulk", "client/scheduled"}
OPTIONS = ("queue", "retry", "backtrace", "dead", "retry_for", "retry_queue", "tags", "pool")
OPTIONS += ("log_level",)

client: jobwire.Client


def connect(url):
    """Connect before the first request."""
    global client
    client = jobwire.Client(url)


def perform(request):
    """Do one request; return the answer, in the words of `schema/driver.json`."""
    job = dict(request["job"])
    name, options = job.pop("class", None), {key: job.pop(key) for key in OPTIONS if key in job}
    times = {key: request[key] for key in ("at", "spread_interval") if key in request}
    try:
        if request["op"] == "push_bulk":
            jids = client.push_bulk(name, request["args"], fields=job, **options, **times)
            return {"outcome": "ok", "jids": jids}
        args, jid = job.pop("args", None), job.pop("jid", None)
        if "in" in request:
            jid = client.push_in(request["in"], name, args, jid=jid, fields=job, **options)
        else:
            jid = client.push(name, args, jid=jid, fields=job, **options, **times)
    except NoReply as error:
        return {"outcome": "unknown", "message": str(error)}
    except (InvalidJob, JobwireError) as error:
        return {"outcome": "rejected", "message": str(error)}
    return {"outcome": "ok", "jid": jid}
