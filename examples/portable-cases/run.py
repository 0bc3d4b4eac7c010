"""Runs portable cases of the conformance suite against one's own code, without the suite.

    jobwire conform export cases client/core client/bulk client/scheduled
    python run.py cases redis://127.0.0.1:6379/15

It needs redis-py (`pip install redis`), and empties that database. `docs/how-to/portable-cases.md`
has the rules. Only `port.py` knows the implementation: it has the function `perform(request)`,
which returns the answer.
"""

import json
import re
import sys
import time
from pathlib import Path

import port
import redis

ABSENT = object()
TYPES = {"null": type(None), "boolean": bool, "integer": int, "float": float}
TYPES |= {"string": str, "array": list, "object": dict}


def fits(matcher, seen, run):
    """Return whether a value matches a matcher, or equals a literal, which may hold matchers."""
    if isinstance(matcher, list) and isinstance(seen, list):
        return len(matcher) == len(seen) and all(map(fits, matcher, seen, [run] * len(seen)))
    if not isinstance(matcher, dict):
        return type(matcher) is type(seen) and repr(matcher) == repr(seen)  # 1 is not 1.0 or true
    kind, wanted = matcher.get("$"), matcher.get("is")
    if kind == "absent":
        return seen is ABSENT or seen is None
    if seen is ABSENT:
        return False
    if kind is None:
        return matcher.keys() == seen.keys() and has(matcher, seen, run)
    if kind == "json":
        contained = all(text in seen for text in matcher.get("contains", ()))
        return contained and has(wanted, json.loads(seen), run)
    if kind in ("range", "time") and isinstance(seen, str):
        seen = float(seen)  # Redis replies with a text
    if kind == "range":
        return matcher.get("min", seen) <= seen <= matcher.get("max", seen)
    if kind == "time":
        scale = 1000 if matcher["unit"] == "ms" else 1
        first, last = (moment(matcher["of"], now) for now in (run["began"], time.time()))
        return first - matcher["within"] <= seen / scale <= last + matcher["within"]
    if kind == "any":
        run[matcher.get("name")] = seen
    return {
        "any": lambda: True,
        "same": lambda: run[matcher["name"]] == seen,
        "type": lambda: type(seen) is TYPES[wanted],
        "pattern": lambda: re.search(wanted, seen) is not None,
        "has": lambda: has(wanted, seen, run),
    }[kind]()


def matches(matcher, seen, run):
    """Return whether a value fits. A value of another type than expected does not."""
    try:
        return fits(matcher, seen, run)
    except (AttributeError, TypeError, ValueError):
        return False


def has(wanted, seen, run):
    """Return whether an object has these members."""
    return all(fits(matcher, seen.get(name, ABSENT), run) for name, matcher in wanted.items())


def moment(of, now):
    """Return the epoch seconds of a number, or of a time around now."""
    return now + of["plus"] if isinstance(of, dict) else of


def filled(value):
    """Return a request or command with numbers in place of its times around now."""
    if isinstance(value, list):
        return [filled(part) for part in value]
    if isinstance(value, dict) and value.get("$") == "now":
        return moment(value, time.time())
    if isinstance(value, dict):
        return {name: filled(part) for name, part in value.items()}
    return value


def faults(case, server):
    """Yield the steps of a case that do not hold."""
    server.flushdb()
    run, answer = {"began": time.time()}, {}
    for step in case["steps"]:
        if "request" in step:
            answer = port.perform(filled(step["request"]))
            for field, name in step.get("bind", {}).items():
                run[name] = answer.get(field)
                run |= {f"{name}_{n}": part for n, part in enumerate(answer.get("jids", ()))}
            if answer["outcome"] != step.get("outcome", answer["outcome"]):
                yield f"{case['case']}: {step['request']}: answer {answer}"
        seen = server.execute_command(*filled(step["send"])) if "send" in step else answer
        if "check" in step:
            kind = "answer" if "answer" in step else "reply"
            wanted = {"$": "has", "is": step[kind]} if kind == "answer" else step[kind]
            if not matches(wanted, seen, run):
                subject = step.get("send", kind)
                yield f"{case['case']}#{step['check']}: {subject}: expected {wanted}, seen {seen}"


if __name__ == "__main__":
    cases = [json.loads(path.read_text()) for path in sorted(Path(sys.argv[1]).glob("*.json"))]
    server = redis.Redis.from_url(sys.argv[2], decode_responses=True, protocol=2)
    server.response_callbacks.clear()  # replies as the server sends them
    port.connect(sys.argv[2])
    able = [case for case in cases if not case["needs"] and set(case["claims"]) & port.CLAIMS]
    found = [fault for case in able for fault in faults(case, server)]
    sys.stdout.write("".join(f"{fault}\n" for fault in found))
    sys.stdout.write(f"{len(able)} cases of {len(cases)}, {len(found)} faults\n")
    sys.exit(bool(found) or not able)
