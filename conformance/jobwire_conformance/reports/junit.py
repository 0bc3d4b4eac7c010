"""The report in the format of JUnit, for test reporters."""

from __future__ import annotations

from xml.etree import ElementTree

from jobwire_conformance.reports.failure import explanation
from jobwire_conformance.reports.results import Results
from jobwire_conformance.reports.text import plain
from jobwire_conformance.run.verdicts import FAILURES

__all__ = ["junit"]


def junit(results: Results) -> bytes:
    """Return the file. An error that ended a case or the run is a test with an error.

    The name of a test is its requirement with the case, because test reporters merge tests of one
    name. A case is not a file of the repository under test, so no test has one.
    """
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
            name=f"{check['requirement']} ({check['case']})",
            time=f"{check.get('seconds', 0):.3f}",
        )
        status = check["status"]
        if status in FAILURES or _skipped(status):
            reason = check.get("reason") or check.get("message") or check.get("blocked_by") or ""
            failed = status in FAILURES
            if "follows" in check:
                reason = f"probably follows from {check['follows']}: {reason}"
            message = plain(reason if failed else f"{status}: {reason}")
            result = ElementTree.SubElement(
                test, "failure" if failed else "skipped", message=message
            )
            result.text = plain("\n".join(explanation(check, results.get("again", ""))))
    for number, error in enumerate(errors, 1):
        # A run may end with several errors, and a report must not have two tests of one name.
        name = error.get("case", f"run, error {number}")
        test = ElementTree.SubElement(suite, "testcase", classname="jobwire", name=name)
        first, _, whole = error["message"].partition("\n")
        ElementTree.SubElement(test, "error", message=plain(first)).text = plain(whole)
    document: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return document


def _skipped(status: str) -> bool:
    return status not in FAILURES and status not in ("pass", "stale")
