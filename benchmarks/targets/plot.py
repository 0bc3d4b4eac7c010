"""Bars as SVG, written by hand: nothing to install for a picture of some rectangles."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["bars"]

WIDTH, LABEL, VALUE, ROW, HEAD = 720, 170, 90, 30, 40  # pixels


def bars(title: str, samples: Mapping[str, Sequence[float]]) -> str:
    """Return a picture: a bar to the median for each name, a line from least to most."""
    room = WIDTH - LABEL - VALUE
    scale = room / max(max(values) for values in samples.values())
    height = HEAD + ROW * len(samples) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for index, (name, values) in enumerate(samples.items()):
        top = HEAD + ROW * index
        middle = statistics.median(values)
        least, most = (LABEL + scale * end for end in (min(values), max(values)))
        color = "#2266aa" if index == 0 else "#999999"
        parts.append(
            f'<text x="{LABEL - 8}" y="{top + 17}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{LABEL}" y="{top + 4}" width="{scale * middle:.1f}" height="18" '
            f'fill="{color}"/>'
            f'<path d="M{least:.1f} {top + 13}H{most:.1f}" stroke="black" stroke-width="1.5"/>'
            f'<text x="{max(most, LABEL) + 6:.1f}" y="{top + 17}">{middle:,.0f}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
