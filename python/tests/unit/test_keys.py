"""jobwire.protocol.keys: every key name of the protocol."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pytest

from jobwire.errors import ConfigError
from jobwire.protocol.keys import Keys
from tests.rows import over
from tests.schemas import ROOT, load

IDENTITY = "web-1:42:0123456789ab"


def every_key(keys: Keys) -> dict[str, str]:
    """Return all names that `keys` can build, by field or method."""
    fixed = {
        field.name: getattr(keys, field.name)
        for field in dataclasses.fields(keys)
        if field.name != "namespace"
    }
    return fixed | {
        "queue": keys.queue("default"),
        "process": keys.process(IDENTITY),
        "work": keys.work(IDENTITY),
        "signals": keys.signals(IDENTITY),
        "private": keys.private(IDENTITY),
        "classes": keys.classes(IDENTITY),
        "idle": keys.idle("0a1b2c3d" * 5, "bell"),
        "processed": keys.stat("processed"),
        "failed": keys.stat("failed"),
        "processed today": keys.stat("processed", "2026-11-20"),
        "failed today": keys.stat("failed", "2026-11-20"),
        "iteration": keys.iteration("9f2c1b7a4d3e5f60718293a4"),
        "result": keys.result("9f2c1b7a4d3e5f60718293a4"),
        "progress": keys.progress("9f2c1b7a4d3e5f60718293a4"),
        "steps": keys.steps("9f2c1b7a4d3e5f60718293a4"),
        "output": keys.output("9f2c1b7a4d3e5f60718293a4"),
        "unique": keys.unique("9f2c1b7a" * 8),
        "gitlab cookie": keys.gitlab_cookie("resque:gitlab:duplicate:q:" + "9f2c1b7a" * 8),
        "gitlab status": keys.gitlab_status("9f2c1b7a4d3e5f60718293a4"),
        "gitlab cancel": keys.gitlab_cancel("9f2c1b7a4d3e5f60718293a4"),
        "gitlab waiter": keys.gitlab_waiter("gitlab:job_waiter:" + "9f2c" * 9),
        "ruby status": keys.ruby_status("9f2c1b7a4d3e5f60718293a4"),
        "ruby lock": keys.unique("uniquejobs:" + "9f2c1b7a" * 4),
        **dict(
            zip(
                ("ruby last", "ruby info", "ruby primed", "ruby queued"),
                keys.ruby_lock("uniquejobs:" + "9f2c1b7a" * 4),
                strict=True,
            )
        ),
        "limit": keys.limit("mail:[1]", "held"),
        "batch": keys.batch("b-1"),
        "batch_open": keys.batch_open("b-1"),
        "batch_failed": keys.batch_failed("b-1"),
        "task": keys.task("9f2c1b7a4d3e5f60718293a4"),
        "rollup": keys.rollup("250214|8:04"),
        "histogram": keys.histogram("HardJob", "14-8:4"),
        "old histogram": keys.old_histogram("HardJob", "14-08:4"),
        "marks": keys.marks("20250214"),
        "waits": keys.waits("250214|8:04"),
        "deploy lock": keys.deploy_lock("v1.2"),
        "undo": keys.undo("0123456789abcdef"),
        "undo part": keys.undo_part("0123456789abcdef", 3),
        "undo lock": keys.undo_lock("0123456789abcdef"),
    }


PLAIN = {
    "queues": "queues",
    "schedule": "schedule",
    "retry": "retry",
    "dead": "dead",
    "processes": "processes",
    "cleanup_lock": "process_cleanup",
    "owners": "jobwire:owners",
    "returned": "jobwire:returned",
    "returned_at": "jobwire:returned_at",
    "recovery": "jobwire:recovery",
    "pro_paused": "paused",
    "paused": "jobwire:paused",
    "recovered": "jobwire:stat:recovered",
    "lost": "jobwire:stat:lost",
    "handed_over": "jobwire:stat:handed_over",
    "expired": "jobwire:stat:expired",
    "cancelled": "jobwire:cancelled",
    "limits": "jobwire:limits",
    "journal": "jobwire:journal",
    "shards": "jobwire:shards",
    "unreadable": "jobwire:unreadable",
    "parked": "jobwire:parked",
    "parked_why": "jobwire:parked:why",
    "queue": "queue:default",
    "process": "web-1:42:0123456789ab",
    "work": "web-1:42:0123456789ab:work",
    "signals": "web-1:42:0123456789ab-signals",
    "private": "jobwire:private:web-1:42:0123456789ab",
    "idle": "jobwire:idle:" + "0a1b2c3d" * 5 + ":bell",
    "classes": "jobwire:classes:web-1:42:0123456789ab",
    "processed": "stat:processed",
    "failed": "stat:failed",
    "processed today": "stat:processed:2026-11-20",
    "failed today": "stat:failed:2026-11-20",
    "iteration": "it-9f2c1b7a4d3e5f60718293a4",
    "progress": "jobwire:progress:9f2c1b7a4d3e5f60718293a4",
    "result": "jobwire:result:9f2c1b7a4d3e5f60718293a4",
    "steps": "jobwire:steps:9f2c1b7a4d3e5f60718293a4",
    "output": "jobwire:out:9f2c1b7a4d3e5f60718293a4",
    "unique": "jobwire:unique:" + "9f2c1b7a" * 8,
    "gitlab cookie": f"resque:gitlab:resque:gitlab:duplicate:q:{'9f2c1b7a' * 8}:cookie:v2",
    "gitlab status": "gitlab-sidekiq-status:9f2c1b7a4d3e5f60718293a4",
    "gitlab cancel": "sidekiq:cancel:9f2c1b7a4d3e5f60718293a4",
    "ruby status": "sidekiq:status:9f2c1b7a4d3e5f60718293a4",
    "gitlab waiter": f"gitlab:job_waiter:{'9f2c' * 9}",
    "ruby lock": "uniquejobs:" + "9f2c1b7a" * 4 + ":LOCKED",
    "ruby last": "uniquejobs:" + "9f2c1b7a" * 4,
    "ruby info": "uniquejobs:" + "9f2c1b7a" * 4 + ":INFO",
    "ruby primed": "uniquejobs:" + "9f2c1b7a" * 4 + ":PRIMED",
    "ruby queued": "uniquejobs:" + "9f2c1b7a" * 4 + ":QUEUED",
    "ruby_digests": "uniquejobs:digests",
    "limit": "jobwire:limit:mail:[1]:held",
    "batch": "jobwire:batch:b-1",
    "batch_open": "jobwire:batch:b-1:open",
    "batch_failed": "jobwire:batch:b-1:failed",
    "task": "jobwire:task:9f2c1b7a4d3e5f60718293a4",
    "rollup": "j|250214|8:04",
    "histogram": "h|HardJob-14-8:4",
    "old histogram": "HardJob-14-08:4",
    "marks": "20250214-marks",
    "waits": "jobwire:waits:250214|8:04",
    "deploy lock": "deploylock-v1.2",
    "undo": "jobwire:undo:0123456789abcdef",
    "undo part": "jobwire:undo:0123456789abcdef:3",
    "undo lock": "jobwire:undo:0123456789abcdef:lock",
}


def test_without_a_namespace_the_names_are_sidekiqs() -> None:
    """KEY-0, KEY-1, KEY-2, KEY-3, KEY-9: the names of SPEC.md, without a prefix."""
    assert every_key(Keys()) == PLAIN


@pytest.mark.parametrize("namespace", ["app:", "{shard-03}:", "ü", "queue:"])
def test_a_namespace_is_in_front_of_every_key(namespace: str) -> None:
    """KEY-4: every key has the prefix, once."""
    assert every_key(Keys(namespace)) == {what: namespace + key for what, key in PLAIN.items()}


@over(
    ("name", "key"),
    [
        ("queue:x", "queue:queue:x"),
        ("a:b", "queue:a:b"),
        ("a|b c", "queue:a|b c"),
        ("größe", "queue:größe"),
        ("", "queue:"),
    ],
)
def test_a_queue_name_is_copied_as_it_is(name: str, key: str) -> None:
    """KEY-2: a queue's name is not escaped, stripped or parsed."""
    assert Keys().queue(name) == key


def test_our_own_keys_carry_our_name() -> None:
    """KEY-5: keys that Sidekiq does not have begin with jobwire:."""
    sidekiq: tuple[str, ...] = ("queue", "schedule", "retry", "dead", "process", "stat:", IDENTITY)
    sidekiq += ("it-", "j|", "h|", "HardJob-", "20250214-", "deploylock-", "paused")
    sidekiq += ("uniquejobs:", "resque:gitlab:", "gitlab-sidekiq-status:", "sidekiq:cancel:")
    sidekiq += ("gitlab:job_waiter:", "sidekiq:status:")
    own = {key for key in every_key(Keys()).values() if not key.startswith(sidekiq)}
    assert own
    assert all(key.startswith("jobwire:") for key in own)


def test_our_own_keys_are_in_the_registry() -> None:
    """KEY-5: each key that begins with jobwire: has a row in the table of section 5."""
    rows = [row["name"] for row in load(ROOT / "schema" / "registry.json")["keys"]]
    forms = [re.sub(r"<[^>]*>", ".+", re.escape(name)) for name in rows if "jobwire:" in name]
    own = [key for key in every_key(Keys()).values() if key.startswith("jobwire:")]
    assert [key for key in own if not any(re.fullmatch(form, key) for form in forms)] == []


@pytest.mark.parametrize("namespace", ["", "queue:", "app:"])
def test_keys_of_the_reliable_profile_look_like_no_queue(namespace: str) -> None:
    """REL-6: inside the namespace, no private key matches queue:*."""
    keys = Keys(namespace)
    for key in (keys.owners, keys.returned, keys.private(IDENTITY), keys.private("queue:1:ab")):
        assert not key.removeprefix(namespace).startswith("queue:")


def test_no_two_keys_are_the_same() -> None:
    keys = list(every_key(Keys("n:")).values())
    assert [pair for pair in itertools.combinations(keys, 2) if pair[0] == pair[1]] == []


@pytest.mark.parametrize("namespace", ["my app:", "app:\n", " "])
def test_white_space_in_a_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(ConfigError, match=r"namespace: .* holds white space; use a prefix"):
        Keys(namespace)
