"""jobwire.console.ops.detect: every row of its tables, and the versions that explain all signs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from jobwire.console.ops.detect import (
    Detection,
    Evidence,
    Sighting,
    examine,
    namespace_of,
    sign_of_key,
    signs_of_payload,
    signs_of_process,
)
from jobwire.console.ops.hazards import HAZARDS
from jobwire.console.ops.products import (
    CLASSES,
    FIELDS,
    FIXED_KEYS,
    FORMS,
    KEYS,
    PRODUCTS,
    TREATMENTS,
    Sign,
    version,
)
from jobwire.inspect.processes import ProcessInfo, read_process
from jobwire.protocol.foreign import DELAYED_CLASSES, POLICIES, Feature
from jobwire.protocol.payload import encode
from jobwire.settings.table import SETTINGS

MS = 1_795_191_255_424
S = 1_795_191_255.424

KEY_EXAMPLES = {
    "jobwire-key": ["jobwire:owners", "jobwire:private:web:1:0123456789ab"],
    "unique-metrics": ["uniquejobs:metrics|261120|16:14"],
    "unique-lock": [f"uniquejobs:{'a' * 32}:LOCKED", f"uniquejobs:{'b' * 64}:QUEUED"],
    "unique-key": ["uniquejobs:changelog", "uniquejobs:live"],
    "cron-2": ["cron_jobs:billing"],
    "scheduler": ["sidekiq-scheduler:pushed:nightly"],
    "status": ["sidekiq:status:da883554ee4fe414012f5f42"],
    "throttled": ["throttled:A::B:concurrency.v2:7", "throttled:A:threshold"],
    "batch-key": ["BID-abcdefghij-_12", "BID-abcdefghij-_12-jids", "invalidated-bid-x"],
    "pro-batch": ["b-abcdefghij-_12", "b-abcdefghij-_12-failinfo"],
    "super-fetch-list": ["queue:sq|web:1:0123456789ab|default"],
    "unique-ent": [f"unique:{'a' * 40}", f"unique:{'b' * 43}="],
    "limiter": ["lmtr-cfree-stripe"],
    "limit-fetch": ["limit_fetch:probed:default"],
    "limit-beat": ["limit:heartbeat:9f2c"],
    "gitlab-cookie": ["resque:gitlab:resque:gitlab:duplicate:default:ab:cookie:v2"],
    "gitlab-namespace": ["resque:gitlab:queues"],
    "gitlab-key": [
        *("gitlab-sidekiq-status:ab", "gitlab:job_waiter:ab", "gitlab:exclusive_lease:ab"),
        *("sidekiq:concurrency_limit:{a}:executing", "sidekiq:cancel:ab"),
    ],
    "gitlab-fetcher": ["working:queue:default:web:1:ab", "reliable-fetcher-cleanup-lock"],
    "resque-key": ["resque:queues", "resque:stat:processed"],
    "private-list": ["queue:backup::node::q", "queue:backup|id|q", "queue:q:1:inprogress"],
    "layer-key": [
        *("batching:batches", "debounce/v3/A/b", "inproc:web:1:ab:q", "sidekiq:statistic"),
        "activejob_uniqueness:a:b",
    ],
    "program-key": ["rq:queue:default", "bull:mail:wait", "_kombu.binding.celery", "arq:queue"],
    "metrics-beta": ["j|20261120", "j|20261120|16"],
    "metrics-7": ["j|20261120|16:4"],
    "metrics-8": ["j|261120|16:04", "j|261120|16:1"],
    "histogram-8": ["h|Echo::Job-20-16:19"],
    "histogram-7": ["Echo::Job-20-16:19", "::Job-02-6:1"],
    "marks": ["20261120-marks"],
    "deploylock": ["deploylock-v1.2.3"],
    "iteration": ["it-da883554ee4fe414012f5f42"],
    "work-old": ["web:1:0123456789ab:workers"],
    "work": ["web:1:0123456789ab:work"],
}
FIELD_EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "jw-field": [{"jw_context": {}}],
    "lock-digest": [{"lock_digest": "uniquejobs:ab"}],
    "unique-digest": [{"unique_digest": "uniquejobs:ab"}],
    "bid": [{"bid": "abcdefghij-_12"}],
    "expires-in": [{"expires_in": 60}],
    "encrypt": [{"encrypt": True}],
    "unique-for": [{"unique_for": 60}, {"unique_until": "start"}],
    "overrated": [{"overrated": 1}],
    "compressed": [{"compressed": True}, {"size_limiter": "validated"}],
    "gitlab-field": [{"meta.caller_id": "Cronjob"}, {"wal_locations": {}}],
    "layer-field": [{"encrypted_args": [0]}, {"debounce_key": "a"}],
    "trace": [{"traceparent": "00-a-b-01"}, {"newrelic": {}}],
}
FORM_EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "seconds": [{"created_at": S}, {"failed_at": S}],
    "milliseconds": [{"enqueued_at": MS}, {"retried_at": MS}],
    "whole-seconds": [{"created_at": 1_795_191_255}],
    "text-times": [{"failed_at": "2026-11-20 16:14:15 UTC"}, {"failed_at": None}],
    "no-created-at": [{"class": "A", "args": []}],
    "no-jid": [{"class": "A", "args": []}],
    "class-first": [
        {"class": "A", "args": [], "retry": True, "queue": "q", "jid": "ab", "created_at": S}
    ],
    "backtrace-array": [{"error_backtrace": ["a.rb:1"]}],
    "backtrace-lines": [{"error_backtrace": "eJyL\nVg==\n"}],
    "backtrace-line": [{"error_backtrace": "eJyLVg=="}],
    "cattr-object": [{"cattr": {"user": 1}}],
    "cattr-array": [{"cattr": [["user", 1]]}],
    "retry-for": [{"retry_for": 60}],
    "idempotency-key": [{"idempotency_key": "resque:gitlab:duplicate:default:ab"}],
    "wrapper-new-form": [{"class": "Sidekiq::ActiveJob::Wrapper"}],
}
CLASS_EXAMPLES = {
    "wrapper-old": ["ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"],
    "wrapper-new": ["Sidekiq::ActiveJob::Wrapper"],
    "batch-callback": ["Sidekiq::Batch::Callback::Worker"],
    "delayed": sorted(DELAYED_CLASSES),
}
OF_PROCESSES = {"beat-5", "beat-6", "namespace"}


def codes(fields: dict[str, Any], **how: Any) -> set[str]:
    return {sign.code for sign in signs_of_payload(fields, **how)}


def sightings(*signs: Sign | str) -> list[Sighting]:
    known = {sign.code: sign for sign in every_sign()}
    return [Sighting(known[one] if isinstance(one, str) else one, 1, "queue:q") for one in signs]


def every_sign() -> Iterable[Sign]:
    yield from FORMS.values()
    yield from CLASSES.values()
    yield from (sign for _, sign in (*KEYS, *FIELDS, *FIXED_KEYS.values()))


def seen(*signs: Sign | str, **more: Any) -> Detection:
    return examine(Evidence(sightings=sightings(*signs), **more))


def sidekiqs(found: Detection) -> list[str]:
    return [writer.versions for writer in found.writers if writer.product == "sidekiq"]


def process(name: str, **info: Any) -> ProcessInfo:
    fields = {"identity": "a:1:2", "labels": [], "version": name} | info
    beat = [b"info", encode(fields), b"rss", str(info.get("rss", 1)).encode()]
    read = read_process("a:1:2", beat)
    assert read is not None
    return read


def running(*versions: str) -> list[Sign]:
    return [signs_of_process(process(one)) for one in versions]


# -- signs


def test_every_key_of_the_table_is_known_by_its_name() -> None:
    assert set(KEY_EXAMPLES) == {sign.code for _, sign in KEYS}
    for code, keys in KEY_EXAMPLES.items():
        for key in keys:
            sign = sign_of_key(key)
            assert (key, sign.code if sign else None) == (key, code)


@pytest.mark.parametrize(
    "key",
    [
        *("queues", "queue:default", "queue:a:b", "schedule", "retry", "dead", "cron_job:a"),
        *("web:1:0123456789ab", "web:1:0123456789ab-signals", "app:user:7", "b-7", "unique"),
        *("stat:processed:2026-11-20", "2026-marks", "session-20-16:19", "it-support"),
        *("unique:emails", "b-longer-than-a-bid", "h|", "queue:limit:processes"),
    ],
)
def test_other_keys_are_no_sign(key: str) -> None:
    assert sign_of_key(key) is None


def test_fields_classes_and_forms_of_the_table_are_known() -> None:
    assert set(FIELD_EXAMPLES) == {sign.code for _, sign in FIELDS}
    assert set(FORM_EXAMPLES) == {sign.code for sign in FORMS.values()} - OF_PROCESSES
    assert set(CLASS_EXAMPLES) == {sign.code for sign in CLASSES.values()}
    for code, payloads in (FIELD_EXAMPLES | FORM_EXAMPLES).items():
        for fields in payloads:
            assert code in codes(fields), fields
    for code, classes in CLASS_EXAMPLES.items():
        for name in classes:
            assert code in codes({"class": name})


def test_an_ordinary_payload_has_only_the_form_of_its_times() -> None:
    """Options of people show no version, because all versions carry them."""
    ordinary = {"retry": True, "queue": "q", "args": [], "class": "A", "jid": "ab"}
    options = {"tags": ["a"], "bid": None, "expires_in": False, "locale": "de", "version": 2}
    options |= {"idempotency_key": "order-7", "lock": "until_executed", "store": "main"}
    assert codes({**ordinary, "created_at": MS, "enqueued_at": MS, **options}) == {"milliseconds"}
    assert codes({**ordinary, "created_at": S, "failed_at": MS}) == {"seconds", "milliseconds"}
    assert codes({"class": ["A"], "args": 5}, on_queue=False) == set()
    assert codes({"created_at": True}) == {"text-times"}


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (process("7.3.2"), ("sidekiq", "7.3.2", "7.3.3")),
        (process("8.1.7"), ("sidekiq", "8.1.7", "8.1.8")),
        (process("jobwire 0.1.0"), ("jobwire", "0.1.0", "")),
        (process(""), ("sidekiq", "6.1.3", "7.0.2")),
        (process("", rss=0), ("sidekiq", "", "6.1.3")),
        (process("go-workers 2"), ("other-worker", "", "")),
        (process("", identity=None, labels=None), ("sidekiq", "6.1.3", "7.0.2")),
    ],
)
def test_processes_tell_their_version(info: ProcessInfo, expected: tuple[str, ...]) -> None:
    sign = signs_of_process(info)
    assert (sign.product, sign.since, sign.before) == expected


def test_a_heartbeat_of_another_program() -> None:
    read = read_process("a", [b"info", b'{"Pid":1,"Queue":"q"}'])
    assert read is not None
    assert signs_of_process(read).product == "other-worker"


def test_a_namespace_is_found_by_its_set_of_queues() -> None:
    assert namespace_of("shop:queues") == "shop:"
    assert namespace_of("a:b:queues") == "a:b:"
    assert namespace_of("queues") is None
    assert namespace_of("resque:queues") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7.3.2", (7, 3, 2)), ("8.0.0.beta1", (8, 0, 0)), ("7.0rc1", (7, 0)), ("", ()), ("x", ())],
)
def test_versions(text: str, expected: tuple[int, ...]) -> None:
    assert version(text) == expected


# -- versions of Sidekiq


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        (["seconds"], ["before 8.0"]),
        (["milliseconds"], ["8.0 or newer"]),
        (["stat"], [""]),
        (["seconds", "metrics-7", "iteration"], ["7.3 or newer, before 8.0"]),
        (["seconds", "work-old", "beat-6"], ["6.1.3 or newer, before 6.4.2"]),
        (["seconds", "class-first"], ["before 6.0.4"]),
        (["seconds", "delayed"], ["before 7.0"]),
        (["seconds", "milliseconds", "stat"], ["before 8.0", "8.0 or newer"]),
        (["backtrace-lines", "backtrace-line"], ["6.0.1 or newer, before 7.2.1", "7.2.1 or newer"]),
        ([*running("7.3.2"), "seconds", "process-cleanup", "iteration"], ["7.3.2"]),
        ([*running("6.5.12", "7.3.2", "8.1.7"), "milliseconds"], ["6.5.12", "7.3.2", "8.1.7"]),
        ([*running("8.1.7"), "milliseconds", "seconds"], ["before 8.0", "8.1.7"]),
        ([*running("7.3.2"), "wrapper-new-form"], ["7.3.2", "7.3.3 or newer"]),
    ],
    ids=str,
)
def test_the_fewest_versions_that_explain_all_signs(
    signs: list[Sign | str], expected: list[str]
) -> None:
    assert sidekiqs(seen(*signs)) == expected


def test_major_versions() -> None:
    found = seen("seconds", "milliseconds")
    assert [writer.generations for writer in found.writers] == [[5, 6, 7], [8]]
    assert seen("class-first").writers[0].generations == [5, 6]
    assert seen("beat-6").writers[0].generations == [6, 7]
    assert seen("status").writers[0].generations == ()


def test_evidence_that_jobwire_writes_also_is_not_certain() -> None:
    shared = ["milliseconds", "iteration", "stat", "cron-2"]
    assert all(writer.certain for writer in seen(*shared).writers)
    found = seen(*shared, *running("jobwire 0.1.0"))
    assert {one.product: (one.versions, one.certain) for one in found.writers} == {
        "sidekiq": ("8.0 or newer", False),
        "jobwire": ("0.1.0", True),
        "sidekiq-cron": ("2.0 or newer", False),
    }
    assert found.findings == [], "no conflict follows from it"
    found = seen(*shared, *running("jobwire 0.1.0", "8.1.7"))
    assert found.writers[0].versions == "8.1.7"
    assert found.writers[0].certain


def test_what_jobwire_writes_may_also_be_misread() -> None:
    """Times in milliseconds next to a process of Sidekiq 7, whichever program wrote them."""
    mixed: list[Sign | str] = [*running("jobwire 0.1.0", "7.3.2"), "milliseconds", "iteration"]
    found = seen(*mixed)
    assert [(one.versions, one.certain) for one in found.writers] == [
        ("7.3.2", True),
        ("8.0 or newer", False),
        ("0.1.0", True),
    ]
    assert "times-misread" in {one.code for one in found.findings}
    newer = seen(*running("jobwire 0.1.0", "8.1.7"), "seconds").findings
    assert newer == [], "8 reads the older form"


# -- other products


def test_versions_of_other_products() -> None:
    versions = {one.product: one.versions for one in seen("cron-1", "unique-lock").writers}
    assert versions == {"sidekiq-cron": "before 2.0", "sidekiq-unique-jobs": "7 or newer"}
    both = seen("cron-1", "cron-2", *running("jobwire 0.1", "jobwire 0.2"))
    assert {one.product: one.versions for one in both.writers} == {
        "jobwire": "0.1, 0.2",
        "sidekiq-cron": "before 2.0, 2.0 or newer",
    }


def test_the_field_of_batches_belongs_to_the_product_whose_keys_are_there() -> None:
    assert [one.product for one in seen("bid").writers] == ["sidekiq-pro"]
    assert [one.product for one in seen("bid", "batch-key").writers] == ["sidekiq-batch"]
    both = [one.product for one in seen("bid", "batch-key", "pro-batch").writers]
    assert both == ["sidekiq-pro", "sidekiq-batch"]


def test_each_product_says_the_fate_of_its_jobs() -> None:
    products_with_a_row = {sign.product for sign in every_sign()}
    assert products_with_a_row | {"other-worker"} == set(PRODUCTS)
    signs = {sign.code for sign in every_sign()}
    assert set(TREATMENTS) <= signs | set(PRODUCTS)
    for sign in every_sign():
        if sign.product == "jobwire":
            continue
        (writer,) = seen(sign).writers
        own_row = {sign.code, sign.product} & set(TREATMENTS)
        assert bool(writer.treatments) == bool(own_row)
    assert seen("bid").writers[0].treatments["field bid"].fate == "park"
    assert seen("encrypt").writers[0].treatments["field encrypt"].fate == "fail"
    assert seen("compressed").writers[0].treatments.keys() == {"fields of GitLab's size limiter"}


# -- conflicts

CASES: dict[str, list[list[Sign | str]]] = {
    "times-misread": [["milliseconds", "seconds"], [*running("7.3.2", "8.1.7")]],
    "retry-for-misread": [[*running("7.3.2", "8.1.7"), "retry-for"]],
    "attributes-misread": [["cattr-array", "seconds"]],
    "wrapper-unknown": [[*running("7.3.2", "8.1.7"), "wrapper-new"]],
    "running-jobs-hidden": [["work-old", *running("8.1.7")]],
    "concurrency-hidden": [[*running("8.0.5", "8.1.7")]],
    "backtrace-misread": [["backtrace-array", *running("7.3.2")]],
    "metrics-split": [[*running("7.3.2", "8.1.7")], ["metrics-7", "metrics-8"]],
    "namespace-apart": [["namespace", "milliseconds"]],
    "cron-layouts": [["cron-1", "cron-2"]],
    "whole-seconds-misread": [["whole-seconds", "milliseconds"]],
    "text-times-misread": [["text-times"]],
    "batches-uncertain": [["batch-key", "pro-batch"]],
    "upgrade-7-namespace": [["namespace"]],
    "upgrade-7-delayed": [["delayed"]],
    "upgrade-8-times": [["seconds"]],
    "upgrade-8-active-job": [["wrapper-old", *running("7.3.2")]],
    "upgrade-8-retry-for": [["retry-for", *running("7.3.9")], ["retry-for", *running("8.0.1")]],
    "upgrade-8-attributes": [["cattr-object", "seconds"]],
    "upgrade-8-metrics": [["metrics-7"]],
    "upgrade-cron-2": [["cron-1"]],
}
SERVERS = {"upgrade-7-server": ("delayed", "6.0.16"), "upgrade-8-server": ("seconds", "6.2.14")}


def test_every_conflict_has_a_case() -> None:
    assert set(CASES) | set(SERVERS) == {row.code for row in HAZARDS}


@pytest.mark.parametrize("code", CASES)
def test_a_conflict_needs_all_of_its_evidence(code: str) -> None:
    for signs in CASES[code]:
        found = {one.code for one in seen(*signs).findings}
        assert code in found
        for index in range(len(signs)):
            rest = seen(*signs[:index], *signs[index + 1 :])
            assert code not in {one.code for one in rest.findings}, signs[index]


@pytest.mark.parametrize("code", SERVERS)
def test_an_upgrade_may_need_another_server(code: str) -> None:
    sign, server = SERVERS[code]
    assert code in {one.code for one in seen(sign, server=server).findings}
    for other in ("7.2.4", ""):
        assert code not in {one.code for one in seen(sign, server=other).findings}


def test_one_version_alone_has_no_conflict() -> None:
    """Only an upgrade is worth a note, and Sidekiq 8 with jobwire is not."""
    assert seen(*running("8.1.7", "jobwire 0.1"), "milliseconds", "retry-for").findings == []
    codes = {one.code for one in seen(*running("7.3.2"), "seconds").findings}
    assert codes == {"upgrade-8-times"}
    assert seen().writers == []


def test_errors_come_first_and_name_an_example() -> None:
    found = seen(*running("6.4.1", "8.1.7"), "wrapper-new", "wrapper-old").findings
    severities = [one.severity for one in found]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert found[0].evidence == {"class Sidekiq::ActiveJob::Wrapper": "queue:q"}


def test_namespaces_are_sidekiq_before_7() -> None:
    found = examine(Evidence(namespaces=["shop:", "b:"]))
    assert sidekiqs(found) == ["before 7.0"]
    assert found.writers[0].evidence == {"all keys under a prefix": 2}
    assert {one.code for one in found.findings} >= {"upgrade-7-namespace"}


def test_settings_that_the_rows_name_exist() -> None:
    """A row says the default of its feature, and another value to choose."""
    settings = " ".join(one.setting for one in TREATMENTS.values())
    for name in ("unknown_jobs", "foreign", "periodic"):
        assert name in SETTINGS
        assert name in settings
    rows: dict[str, Feature] = {
        **{"bid": "bid", "expires-in": "expires_in", "encrypt": "encrypt"},
        **{"unique-for": "unique_for", "overrated": "overrated"},
    }
    for code, feature in rows.items():
        assert TREATMENTS[code].fate == POLICIES[feature]
        assert f"foreign {feature}=" in TREATMENTS[code].setting
