"""Link checker: every link inside the checkout leads to a file and to one of its headings.

    python -m tools.links    judge every Markdown file of the checkout (make lint)

A link to another site is not followed: only its form is checked. Exit status: 0 clean, 1 hits.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tools.markdown import ROOT, anchors, links

HOST = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,}")
# Fragments stand in front of a list of their own, at the root; they have no page to link from.
SKIPPED = ("changelog.d/",)


def main() -> int:
    """Print the broken links of the checkout; return the exit status."""
    pages = [path for path in tracked() if not path.startswith(SKIPPED)]
    hits = [
        f"{page}:{line}: {link}: {problem}\n"
        for page in pages
        for line, link, problem in broken(ROOT / page, (ROOT / page).read_text("utf-8"))
    ]
    sys.stdout.write("".join(hits))
    if hits:
        sys.stderr.write(f"links: {len(hits)} broken links in {len(pages)} files\n")
    return 1 if hits else 0


def tracked() -> list[str]:
    """Return the Markdown files that git knows or would add, relative to the checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return sorted(name for name in listed if (ROOT / name).is_file())


def broken(page: Path, text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, target and problem of each broken link of a page."""
    for match in links(text):
        link = match["inline"] or match["reference"]
        found = problem(page, text, link)
        if found:
            yield text.count("\n", 0, match.start()) + 1, link, found


def problem(page: Path, text: str, link: str) -> str | None:
    """Return what is wrong with a link of a page, if anything."""
    if re.match(r"[a-z][a-z+.-]*:", link):
        url = urlsplit(link)
        is_lawful = url.scheme in ("http", "https") and HOST.fullmatch(url.hostname or "")
        return None if is_lawful else "not a URL of another site: expected https://host/..."
    path, _, fragment = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return "no such file in the checkout"
    if not fragment:
        return None
    if target.suffix != ".md":
        return "only pages in Markdown have headings to link to"
    there = text if target == page else target.read_text("utf-8")
    return None if fragment in anchors(there) else "the page has no such heading"


if __name__ == "__main__":
    sys.exit(main())
