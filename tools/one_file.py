"""The whole specification as one HTML file that needs no other, and as a PDF.

The text is that of the built pages of its parts. Links to other pages of the site become plain
text, because the file may be read without the site. Diagrams become part of the file.
"""

from __future__ import annotations

import base64
import html
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
PRINT_TIMEOUT_S = 120

_STYLE = """\
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 52rem; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; }
h2 { border-top: 1px solid #8888; margin-top: 2.5rem; padding-top: 1rem; }
pre, table { overflow-x: auto; }
pre { background: #8882; border-radius: 0.2rem; padding: 0.6rem; }
code { background: #8882; font-size: 0.9em; overflow-wrap: anywhere; }
pre code { background: none; }
table { border-collapse: collapse; display: block; font-size: 0.85rem; }
th, td { border: 1px solid #8886; padding: 0.25rem 0.5rem; text-align: left; vertical-align: top; }
blockquote { border-left: 0.25rem solid #3f51b5; margin: 1rem 0; padding: 0 0.8rem; }
img { max-width: 100%; }
@media print {
  :root { color-scheme: light; }
  body { font-size: 9.5pt; margin: 0; max-width: none; padding: 0; }
  a { color: inherit; text-decoration: none; }
  table { display: table; font-size: 8pt; }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; }
  blockquote, pre, img, tr { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
}
@page { margin: 18mm 16mm; size: A4; }
"""


def standalone(pages: Sequence[Path], title: str) -> str:
    """Return built pages as one document that needs no other file."""
    body = "\n".join(_article(page, pages) for page in pages)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _article(page: Path, pages: Sequence[Path]) -> str:
    """Return the content of one page. Of its links, those to the other pages stay."""
    article = re.search(r"<article\b[^>]*>(.*?)</article>", page.read_text("utf-8"), re.DOTALL)
    if article is None:
        raise SystemExit(f"site: {page} has no article")
    body = re.sub(r'<a class="headerlink".*?</a>', "", article[1], flags=re.DOTALL)
    body = re.sub(
        r'<a href="[^"]*" [^>]*class="md-content__button.*?</a>', "", body, flags=re.DOTALL
    )
    body = re.sub(r"<button\b.*?</button>", "", body, flags=re.DOTALL)

    def kept_link(match: re.Match[str]) -> str:
        goal = re.search(r'href="([^"]*)"', match[1])
        identifier = re.search(r'id="([^"]*)"', match[1])
        if goal and goal[1].startswith(("#", "https:", "http:")):
            return match[0]
        path, _, fragment = goal[1].partition("#") if goal else ("", "", "")
        if fragment and (page.parent / path / "index.html").resolve() in pages:
            return f'<a href="#{fragment}">{match[2]}</a>'
        return f'<span id="{identifier[1]}">{match[2]}</span>' if identifier else match[2]

    body = re.sub(r"<a\b([^>]*)>(.*?)</a>", kept_link, body, flags=re.DOTALL)
    body = re.sub(r"<img\b[^>]*>", lambda match: _picture(match[0], page.parent), body)
    return re.sub(r"<source\b[^>]*>\s*<img\b[^>]*>", r"<picture>\g<0></picture>", body).strip()


def _picture(image: str, directory: Path) -> str:
    """Return an image with its content; the one for a dark screen goes before that for paper."""
    path, _, scheme = re.findall(r'src="([^"]+)"', image)[0].partition("#only-")
    content = _embedded(directory / path)
    if scheme == "dark":
        return f'<source media="screen and (prefers-color-scheme: dark)" srcset="{content}">'
    return re.sub(r'src="[^"]+"', f'src="{content}"', image)


def _embedded(path: Path) -> str:
    picture = base64.b64encode(path.resolve().read_bytes()).decode()
    return f"data:image/svg+xml;base64,{picture}"


def chromium() -> str | None:
    """Return the path of a Chromium, if there is one."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


def print_pdf(page: Path, goal: Path) -> None:
    """Print an HTML file into a PDF.

    Raises:
        SystemExit: There is no Chromium, or it has printed nothing.
    """
    program = chromium()
    if program is None:
        raise SystemExit("site: the PDF needs Chromium: apt-get install chromium")
    goal.unlink(missing_ok=True)
    with TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                *(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
                *("--no-first-run", "--disable-background-networking", "--disable-sync"),
                *("--disable-component-update", f"--user-data-dir={profile}"),
                *("--no-pdf-header-footer", f"--print-to-pdf={goal}", page.resolve().as_uri()),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=PRINT_TIMEOUT_S,
        )
    if not goal.is_file() or not goal.read_bytes().startswith(b"%PDF-"):
        raise SystemExit(f"site: {program} printed no PDF:\n{done.stderr[-2000:]}")
    sys.stdout.write(f"site: {goal}, {goal.stat().st_size // 1024} KiB\n")
