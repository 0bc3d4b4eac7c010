"""The report in the format of JUnit, for test reporters."""

from __future__ import annotations

from xml.etree import ElementTree

from jobwire_conformance.reports.results import Results
from jobwire_conformance.reports.text import plain
from jobwire_conformance.run.verdicts import FAILURES

__all__ = ["junit"]


def junit(results: Results) -> bytes:
    """Return the file. An error that ended a case or the run is a test with an error."""
    errors = results.get("errors", [])
    checks = results["checks"]
    suite = ElementTree.Element(
        "testsuite",
        name="jobwire conform",
        tests=str(len(checks) + len(errors)),
        failures=str(sum(check["status"] in FAILURES for check in checks)),
        errors=str(len(errors)),
        skipped=str(sum(_skipped(check["status"]) for check in checks)),
        timestamp=results["started"],
        time=f"{results.get('seconds', 0):.3f}",
    )
    for check in checks:
        test = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"jobwire.{check['claim']}",
            name=check["requirement"],
            file=check["case"],
            time=f"{check.get('seconds', 0):.3f}",
        )
        reason = check.get("reason") or check.get("message") or check.get("blocked_by") or ""
        message = plain(f"{check['case']}: {reason}")
        if check["status"] in FAILURES:
            ElementTree.SubElement(test, "failure", message=message)
        elif _skipped(check["status"]):
            ElementTree.SubElement(test, "skipped", message=f"{check['status']}: {message}")
    for error in errors:
        name = error.get("case", "run")
        test = ElementTree.SubElement(suite, "testcase", classname="jobwire", name=name)
        ElementTree.SubElement(test, "error", message=plain(error["message"]))
    document: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document


def _skipped(status: str) -> bool:
    return status not in FAILURES and status not in ("pass", "stale")
