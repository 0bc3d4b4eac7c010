"""jobwire.worker.execute.joblog: one event is one line."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobwire import JobFilter
from jobwire.application.current import running
from jobwire.protocol.payload import Job
from jobwire.text import visible
from jobwire.worker.execute.joblog import ended, event, flush, insist, printed, set_up, set_up_own
from jobwire.worker.execute.log_format import HumanFormatter, JsonFormatter
from tests.rows import over

JOB = Job(b"{}", {"class": "Hard", "jid": "j1", "tags": ["a", "b"], "bid": "b1"}, "low")
# DEL, CSI, end of line, separators, marks of direction, no width, a tag outside of the BMP.
STEERING = [
    "a\x7f",
    "\x9b2J",
    "\x85",
    "\u2028\u2029",
    "\u202eabc\u2066",
    "\u200b\ufeff",
    "\U000e0041",
]
BOTH = pytest.mark.parametrize("formatter", [HumanFormatter(), JsonFormatter()])


def record(message: str, *args: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("jobwire", logging.INFO, "f.py", 1, message, args, None)
    made.created, made.msecs, made.threadName = 1_795_192_067.5, 500.0, "jobwire-default-3"
    made.__dict__.update(extra)
    return made


def test_a_human_line() -> None:
    """Time in UTC, level, thread, message."""
    line = HumanFormatter().format(record("hello %s", "there"))
    assert line == "2026-11-20T16:27:47.500Z INFO    default-3 hello there"


def test_a_human_line_of_one_process_among_others() -> None:
    line = HumanFormatter(pid=True).format(record("hello"))
    assert re.fullmatch(r"2026-11-20T16:27:47\.500Z INFO    \d+/default-3 hello", line)


def test_a_json_line() -> None:
    """The names are those of Sidekiq's JSON log."""
    entry = json.loads(JsonFormatter().format(record("hello %s", "there")))
    assert entry.pop("pid") > 0
    assert entry == {
        "ts": "2026-11-20T16:27:47.500Z",
        "tid": "default-3",
        "lvl": "INFO",
        "msg": "hello there",
    }


def test_a_line_on_a_terminal_is_short() -> None:
    """Local time; no date, thread or queue. It fits 80 columns for most jobs."""
    formatter = HumanFormatter(short=True)
    clock = time.strftime("%H:%M:%S", time.localtime(1_795_192_067))
    assert formatter.format(record("hello %s", "there")) == f"{clock} INFO    hello there"
    job = Job(b"{}", {"class": "HardJob", "jid": "ea8dd9c66002e492ad476a12"}, "low")
    with running(job):
        line = formatter.format(record("done", elapsed=0.012))
    assert line == (
        f"{clock} INFO    done class=HardJob jid=ea8dd9c66002e492ad476a12 elapsed=0.012"
    )
    assert len(line) <= 80
    several = HumanFormatter(pid=True, short=True).format(record("hello"))
    assert several == f"{clock} INFO    {os.getpid()} hello"


def test_a_terminal_gets_short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file or a pipe gets lines with everything."""
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    ours, theirs = os.openpty()
    os.set_blocking(ours, False)
    with open(theirs, "w") as terminal:
        set_up("human", "info", stream=terminal)
        with running(JOB):
            event(logging.getLogger("jobwire.worker"), logging.INFO, "start")
        assert re.fullmatch(
            r"\d\d:\d\d:\d\d INFO    start class=Hard jid=j1 bid=b1 tags=a,b\r\n",
            os.read(ours, 1000).decode(),
        )
        set_up("json", "info", stream=terminal)
        event(logging.getLogger("jobwire.worker"), logging.INFO, "start")
        assert json.loads(os.read(ours, 1000))["msg"] == "start"
    os.close(ours)


@over("message", ["", "no", "two\nlines", "a blank\n\n\nline", "\x1b[2J\u202e\nend\x00", "\n"])
def test_every_line_of_a_traceback_is_indented_and_visible(message: str) -> None:
    """SEC-2: no text of an error can be taken for a line of the log."""
    lines = ["Traceback (most recent call last):", '  File "\x07", line 1, in f']
    trace = "\n".join([*lines, f"ValueError: {message}"])
    text = HumanFormatter().line(0.0, "ERROR", "x", "fail", {}, trace + "\n")
    shown = [f"  {visible(line)}" for line in trace.rstrip("\n").split("\n")]
    assert text.split("\n")[1:] == shown


def test_handlers_of_the_application_get_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the attributes of the record, in its message, and the error in `exc_info`."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    logger = logging.getLogger("jobwire.worker")
    error = ValueError("no\n\ud800\x1b")
    with running(JOB):
        event(logger, logging.INFO, "start", returned=2)
        ended(logger, logging.ERROR, "fail: a\nb", error=error, elapsed=0.5)
        printed(logger, "a line")
    event(logger, logging.INFO, "outside")
    start, fail, line, outside = records
    words = " class=Hard jid=j1 queue=low bid=b1 tags=a,b"
    assert start.getMessage() == f"start{words} returned=2"
    assert fail.getMessage() == f"fail: a\\nb{words} elapsed=0.5"
    assert fail.exc_info == (ValueError, error, None)
    assert logging.Formatter().format(fail).endswith("=0.5\nValueError: no\n\\ud800\\x1b")
    assert line.getMessage() == "a line"
    assert outside.getMessage() == "outside"
    fields = [(r.job_class, r.jid, r.queue) for r in records]  # type: ignore[attr-defined]
    assert fields == [("Hard", "j1", "low")] * 3 + [("", "", "")]
    assert (start.returned, fail.elapsed) == (2, 0.5)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("formatters", "filtered", "twice"),
    [
        ([logging.Formatter("%(jid)s %(message)s")], True, False),
        ([logging.Formatter("{jid} {message}", style="{")], True, False),
        ([logging.Formatter("%(message)s")], True, True),
        ([logging.Formatter("%(jid)s"), logging.Formatter("%(message)s")], True, True),
        ([JsonFormatter()], True, False),  # as one that writes all attributes
        ([JsonFormatter()], False, True),
        ([None], False, True),
    ],
)
def test_a_line_of_the_application_names_the_job_once(
    monkeypatch: pytest.MonkeyPatch,
    formatters: list[logging.Formatter | None],
    filtered: bool,
    twice: bool,
) -> None:
    """In its format or in the message, so that each line has it."""
    records: list[logging.LogRecord] = []
    handlers = [logging.Handler() for _ in formatters]
    for handler, formatter in zip(handlers, formatters, strict=True):
        monkeypatch.setattr(handler, "emit", records.append)
        handler.setFormatter(formatter)
        if filtered:
            handler.addFilter(JobFilter())
    monkeypatch.setattr(logging.root, "handlers", handlers)
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    with running(JOB):
        event(logging.getLogger("jobwire.worker"), logging.INFO, "start", returned=2)
    identity = " class=Hard jid=j1 queue=low" if twice else ""
    assert {r.getMessage() for r in records} == {f"start{identity} bid=b1 tags=a,b returned=2"}


def test_a_record_may_have_the_attributes_of_the_job_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From a factory of the application, or from `extra`, which must not fail the job."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.addFilter(JobFilter())
    monkeypatch.setattr(
        handler, "emit", lambda record: lines.append(f"{record.jid} {record.queue}")
    )
    monkeypatch.setattr(logging.root, "handlers", [handler])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    logger = logging.getLogger("somebody.else")
    made = logging.getLogRecordFactory()

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = made(*args, **kwargs)
        record.jid = "of the factory"
        return record

    with running(JOB):
        logger.info("x")
        logger.info("x", extra={"queue": "theirs"})
        logging.setLogRecordFactory(factory)
        try:
            logger.info("x")
            event(logging.getLogger("jobwire.worker"), logging.INFO, "start")
        finally:
            logging.setLogRecordFactory(made)
    logger.info("x")
    assert lines == ["j1 low", "j1 theirs", "of the factory low", "j1 low", " "]


def test_handlers_of_the_logger_jobwire_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the shortcut to our own handler."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", records.append)
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    set_up("human", "info", stream=io.StringIO())
    logging.getLogger("jobwire").addHandler(handler)
    try:
        event(logging.getLogger("jobwire.worker"), logging.INFO, "start")
    finally:
        logging.getLogger("jobwire").removeHandler(handler)
    assert [record.getMessage() for record in records] == ["start"]


def standard_error(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Set up the log of a worker on a standard error that the test can read."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    set_up("human", "info")
    return stream


@pytest.mark.parametrize("name", [None, "jobwire", "shop"])
@pytest.mark.parametrize("stream", ["stderr", "stdout", "console", "other"])
def test_each_line_is_written_once(
    monkeypatch: pytest.MonkeyPatch, name: str | None, stream: str
) -> None:
    """A handler that the application adds for the same place takes the place of ours."""
    err = standard_error(monkeypatch)
    theirs = {"stderr": err, "other": io.StringIO()}.get(stream, io.StringIO())
    if stream == "stdout":
        monkeypatch.setattr(sys, "stdout", theirs)
    handler: logging.Handler = logging.StreamHandler(theirs)
    if stream == "console":  # as the handler of `rich`
        handler = logging.Handler()
        handler.console = SimpleNamespace(file=err)  # type: ignore[attr-defined]
        monkeypatch.setattr(
            handler, "emit", lambda record: err.write(handler.format(record) + "\n")
        )
    handler.setLevel(logging.INFO)
    logging.getLogger(name).addHandler(handler)
    logging.getLogger("shop").setLevel(logging.DEBUG)
    try:
        with running(JOB):
            event(logging.getLogger("jobwire.worker"), logging.INFO, "start")
            logging.getLogger("shop").warning("hello")
            logging.getLogger("shop").debug("below the level of the other handler")
    finally:
        logging.getLogger(name).removeHandler(handler)
        logging.getLogger("shop").setLevel(logging.NOTSET)
    own, other = err.getvalue(), "" if theirs is err else theirs.getvalue()
    takes = stream != "other"
    for logger, message in (("jobwire", "start"), ("shop", "hello")):
        ours = not takes or name not in (None, logger)
        line = rf"[^\n]* {message} class=Hard jid=j1 queue=low bid=b1 tags=a,b\n"
        assert len(re.findall(line, own)) == ours
        assert (own + other).count(message) == 1 + (not takes and name in (None, logger))
    assert own.count("below the level") == 1


def test_the_format_of_the_operator_comes_before_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before those that the application gave to a logger of its own."""
    err = standard_error(monkeypatch)
    handler = logging.StreamHandler(err)
    logging.getLogger("shop").addHandler(handler)
    insist("json", "info")
    logging.getLogger("shop").warning("hello")
    assert json.loads(err.getvalue())["msg"] == "hello"
    assert handler not in logging.getLogger("shop").handlers


def test_the_job_is_in_the_line_and_how_often_it_was_put_back() -> None:
    """REL-7: class, jid and queue of the current job; elapsed and returned where known."""
    with running(JOB):
        entry = json.loads(JsonFormatter().format(record("done", elapsed=0.012, returned=2)))
        line = HumanFormatter().format(record("done", elapsed=0.012, returned=2))
    assert entry["ctx"] == {
        "class": "Hard",
        "jid": "j1",
        "queue": "low",
        "bid": "b1",
        "tags": ["a", "b"],
        "elapsed": 0.012,
        "returned": 2,
    }
    words = "done class=Hard jid=j1 queue=low bid=b1 tags=a,b elapsed=0.012 returned=2"
    assert line.endswith(words)
    assert "ctx" not in json.loads(JsonFormatter().format(record("done")))


@BOTH
@pytest.mark.parametrize(
    "text", ["a\nb", "\x1b[2J", "\r\0\x7f", "\ud800", "é\U0001f600", *STEERING]
)
def test_no_text_breaks_the_line(formatter: logging.Formatter, text: str) -> None:
    """RETRY-3: an error message can contain any text."""
    job = Job(b"{}", {"class": text.replace("\ud800", ""), "jid": "j", "tags": [5, "x\ny"]}, "q")
    with running(job):
        line = formatter.format(record("%s", text))
    assert len(line.splitlines()) == 1
    assert line.replace("\ud800", "").isprintable()
    if isinstance(formatter, JsonFormatter) and text != "\ud800":
        assert json.loads(line)["msg"] == json.loads(line)["ctx"]["class"] == text


@BOTH
def test_a_traceback_follows(formatter: logging.Formatter) -> None:
    """SIG-3: a stack also follows."""
    made = record("oops")
    try:
        raise ValueError("\ud800")
    except ValueError:
        made.exc_info = sys.exc_info()
    text = formatter.format(made)
    stack = formatter.format(record("thread x", stack="  File one\n  File two"))
    if isinstance(formatter, JsonFormatter):
        assert "Traceback" in json.loads(text)["exc"]
        assert json.loads(stack)["exc"] == "  File one\n  File two"
    else:
        assert text.splitlines()[1].startswith("  Traceback")
        assert stack.splitlines()[1:] == ["    File one", "    File two"]


@BOTH
@pytest.mark.parametrize(
    "text", ["\n2026-11-20T16:27:47.500Z INFO    x forged", "\x1b[2J", *STEERING]
)
def test_a_traceback_forges_no_line(formatter: logging.Formatter, text: str) -> None:
    """SEC-5, SEC-6: an error may hold any text of an argument."""
    made = record("oops")
    try:
        raise ValueError(text)
    except ValueError:
        made.exc_info = sys.exc_info()
    first, *below = formatter.format(made).split("\n")
    assert all(line.isprintable() for line in [first, *below])
    assert all(line.startswith("  ") for line in below)
    if isinstance(formatter, JsonFormatter):
        assert text in json.loads(first)["exc"]


def test_set_up_replaces_what_was_there(capsys: pytest.CaptureFixture[str]) -> None:
    """All log lines from the level on go to standard error, once."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        set_up("json", "warning")
        set_up("human", "warning")
        logging.getLogger("somebody.else").info("quiet")
        logging.getLogger("somebody.else").warning("loud")
    finally:
        root.handlers[:], root.level = before, level
    out = capsys.readouterr()
    assert out.out == ""
    assert len(out.err.splitlines()) == 1
    assert "loud" in out.err


def test_a_log_that_cannot_be_written_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk or a pipe without a reader."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    reader, writer = os.pipe()
    os.close(reader)
    broken = open(writer, "w")  # noqa: SIM115 - closing it also fails
    monkeypatch.setattr(sys, "stderr", broken)
    try:
        set_up("json", "info")
        event(logging.getLogger("jobwire.worker"), logging.INFO, "start")
    finally:
        root.handlers[:], root.level = before, level
        with pytest.raises(BrokenPipeError):
            broken.close()


def test_the_end_of_a_job_is_written_with_the_next_line_or_when_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """REL-2: an outcome is not stored before the log has the line about it; see `Outbox`."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    ours, other = logging.getLogger("jobwire.worker"), logging.getLogger("somebody.else")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)

    def said() -> list[str]:
        return [line.split(" ", 4)[-1].split()[-1] for line in stream.getvalue().splitlines()]

    try:
        set_up("human", "info")
        ended(ours, logging.INFO, "done-1")
        assert said() == []
        event(ours, logging.INFO, "start-2")
        assert said() == ["done-1", "start-2"]
        ended(ours, logging.INFO, "done-2")
        other.info("theirs")
        assert said()[2:] == ["done-2", "theirs"]
        ended(ours, logging.INFO, "done-3")
        ended(ours, logging.INFO, "done-4")
        ended(ours, logging.DEBUG, "not this")
        flush()
        flush()
        assert said()[4:] == ["done-3", "done-4"]
    finally:
        root.handlers[:], root.level = before, level


def test_what_is_kept_is_not_written_by_a_forked_child_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    log = tmp_path / "log"
    with log.open("a") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        try:
            set_up("human", "info")
            ended(logging.getLogger("jobwire.worker"), logging.INFO, "done")
            child = os.fork()
            if child == 0:
                flush()
                os._exit(0)
            os.waitpid(child, 0)
            assert log.read_text() == ""
            flush()
        finally:
            root.handlers[:], root.level = before, level
    assert log.read_text().count("done") == 1


def test_a_job_costs_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write has two lines; the last job's line comes with the flush."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    logger = logging.getLogger("jobwire.worker")
    writes: list[str] = []

    class Counting(io.StringIO):
        def write(self, text: str) -> int:
            writes.append(text)
            return super().write(text)

    monkeypatch.setattr(sys, "stderr", Counting())
    try:
        set_up("human", "info")
        for _ in range(100):
            with running(JOB):
                event(logger, logging.INFO, "start")
                ended(logger, logging.INFO, "done", elapsed=0.0)
        flush()
    finally:
        root.handlers[:], root.level = before, level
    assert len(writes) == 101
    assert sum(text.count("\n") for text in writes) == 200


def test_the_log_of_another_program_gets_a_handler_only_if_it_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = logging.getLogger("jobwire")
    monkeypatch.setattr(own, "handlers", [])
    monkeypatch.setattr(own, "level", logging.NOTSET)
    set_up_own()  # pytest has handlers at the root
    assert own.handlers == []
    monkeypatch.setattr(logging.root, "handlers", [])
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    for _ in range(2):
        set_up_own()
    event(logging.getLogger("jobwire.worker"), logging.INFO, "hello")
    assert re.fullmatch(r"\S+ INFO    MainThread hello\n", written.getvalue())
