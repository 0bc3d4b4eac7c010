"""The badge of an implementation: its met claims in a few words."""

from __future__ import annotations

import json
from html import escape

from jobwire_conformance.data import CLAIMS, DEFAULT_GENERATION, ROBUST, level_of
from jobwire_conformance.reports.claim_status import BUNDLES, bundles, states
from jobwire_conformance.reports.results import Summary

__all__ = ["badge_json", "badge_svg"]

_LABEL = "jobwire"
_COLORS = {"brightgreen": "#2a7d2e", "yellow": "#8a6100", "red": "#b3261e", "lightgrey": "#5f6368"}
_WIDTH = 6.6  # of a character of 11 px Verdana or DejaVu Sans, on average
_PADDING = 6


def badge_json(results: Summary) -> bytes:
    """Return the badge as JSON for an endpoint of shields.io."""
    message, color = _message(results)
    data = {"schemaVersion": 1, "label": _LABEL, "message": message, "color": color}
    return (json.dumps(data, ensure_ascii=False, indent=2) + "\n").encode()


def badge_svg(results: Summary) -> bytes:
    """Return the badge as an SVG picture."""
    message, color = _message(results)
    left = round(len(_LABEL) * _WIDTH + 2 * _PADDING)
    right = round(len(message) * _WIDTH + 2 * _PADDING)
    title = escape(f"{_LABEL}: {message}")
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" \
aria-label="{title}">
<title>{title}</title>
<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>
<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#3c4043"/>\
<rect x="{left}" width="{right}" height="20" fill="{_COLORS[color]}"/></g>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">\
<text x="{left / 2:g}" y="14">{_LABEL}</text>\
<text x="{left + right / 2:g}" y="14">{escape(message)}</text></g>
</svg>
""".encode()


def _message(results: Summary) -> tuple[str, str]:
    """Return the message, and the name of its colour on shields.io."""
    state_of = states(results)
    kinds = set(state_of.values())
    generation = f"generation {results.get('generation', DEFAULT_GENERATION)}"
    message = " · ".join([*_met(results), generation])
    if "failed" in kinds:
        return message, "red"
    if "deviation" in kinds:
        return message, "yellow"
    if kinds == {"met"}:
        return message, "brightgreen"
    return message, "lightgrey"


def _met(results: Summary) -> list[str]:
    """Return the bundles that are met, and their level; without any, the claims at each level."""
    state_of = states(results)
    names = bundles(results)
    if names:
        claims = {claim for name in names for claim in BUNDLES[name]}
        robust = (claim for name in claims if (claim := f"{name}{ROBUST}") in CLAIMS)
        is_robust = all(state_of.get(claim) == "met" for claim in robust)
        return [*(name.lower() for name in names), "robust" if is_robust else "interop"]
    made: dict[str, list[bool]] = {}
    for claim, state in state_of.items():
        made.setdefault(level_of(claim), []).append(state == "met")
    return [f"{sum(met)} of {len(met)} {level} claims" for level, met in made.items()]
