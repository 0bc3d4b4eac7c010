"""A sequence diagram of commands as SVG: the processes, their commands, and the cuts."""

from __future__ import annotations

from collections.abc import Sequence

from jobwire_conformance.reports.page import inline
from jobwire_conformance.reports.results import TraceLine
from jobwire_conformance.wire.text import command, one_line, reply

__all__ = ["diagram"]

# Distances in pixels.
_BETWEEN = 90  # between two processes
_REACH = 560  # from the last process to the server, with room for the text
_TOP = 34
_STEP = 40  # for a command and its reply
_GAP = 22  # for a line of text instead
_CHARACTER = 7.25  # width of a character of 12 px monospace
_MAX_COMMANDS = 40  # commands in a picture
_NO_REPLY = ("cut", "kill")  # faults after which the reply does not arrive


def diagram(lines: Sequence[TraceLine], title: str) -> str:
    """Return the picture; an empty text without commands."""
    if not lines:
        return ""
    names = sorted({line.proc for line in lines}, key=lambda name: (name != "driver", name))
    first = [60 + _BETWEEN * number for number in range(len(names))]
    at = dict(zip(names, first, strict=True))
    server = first[-1] + _REACH
    left_out = max(len(lines) - _MAX_COMMANDS, 0)
    shown = (
        [*lines[: _MAX_COMMANDS // 2], *lines[len(lines) - _MAX_COMMANDS // 2 :]]
        if left_out
        else [*lines]
    )
    parts: list[str] = []
    y = _TOP + 24
    for number, line in enumerate(shown):
        if left_out and number == _MAX_COMMANDS // 2:
            parts.append(_text(first[-1] + 10, y, f"{left_out} more commands", "gap"))
            y += _GAP
        if line.note:
            room = int((_REACH - 20) / _CHARACTER)
            parts.append(_text(first[-1] + 10, y, _fit(f"{line.proc} {line.note}", room), "gap"))
            y += _GAP
            continue
        parts += _exchange(line, at[line.proc], first[-1], server, y)
        y += _STEP
    bottom = y
    columns = [*at.items(), ("server", server)]
    life = [f'<line class="life" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>' for _, x in columns]
    heads = [
        f'<rect class="head" x="{x - 40}" y="6" width="80" height="{_TOP - 8}" rx="4"/>'
        f'<text class="name" x="{x}" y="24">{inline(_fit(one_line(name), 11))}</text>'
        for name, x in columns
    ]
    width, height = server + 60, bottom + 10
    return "\n".join(
        [
            f'<div class="scroll" tabindex="0" role="region" aria-label="{inline(title)}">',
            f'<svg class="seq" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-label="{inline(title)}">',
            f"<title>{inline(title)}</title>",
            *life,
            *heads,
            *parts,
            "</svg></div>",
        ]
    )


def _exchange(line: TraceLine, start: int, near: int, server: int, y: int) -> list[str]:
    """Return a command and its reply. No line of another process crosses the text."""
    room = int((server - near - 20) / _CHARACTER)
    x = near + 10
    cut = near + 40
    words = command(line.words, room)
    parts = [_text(x, y - 4, _fit(words, room), "")]
    if line.sent:
        parts += [
            f'<line class="go" x1="{start}" y1="{y}" x2="{server - 6}" y2="{y}"/>',
            f'<path class="tip" d="M{server} {y}l-8 -4v8z"/>',
        ]
    else:
        parts += [
            f'<line class="go" x1="{start}" y1="{y}" x2="{cut}" y2="{y}"/>',
            _cross(cut, y),
        ]
        remark = f"{line.fault or 'cut off'}: the server never received it"
        if line.reply is not None:
            remark = f"{line.fault or 'cut off'}: the suite answered: {reply(line.reply, room)}"
            remark = remark[:room]
            parts += [
                f'<line class="come" x1="{cut}" y1="{y + 18}" x2="{start + 6}" y2="{y + 18}"/>',
                f'<path class="tipback" d="M{start} {y + 18}l8 -4v8z"/>',
            ]
        return [*parts, _text(cut + 12, y + 14, remark, "why")]
    back = y + 18
    if line.reply is None or line.fault in _NO_REPLY:
        remark = f"{line.fault}: executed, but the reply was lost" if line.fault else "no reply"
        far = server - 40
        parts += [
            f'<line class="come" x1="{server}" y1="{back}" x2="{far}" y2="{back}"/>',
            _cross(far, back) if line.fault else "",
            _text(x, back - 3, remark, "why" if line.fault else "back"),
        ]
        return parts
    answer = reply(line.reply, room)
    if line.fault:
        answer = f"{line.fault}: {answer}"
    parts += [
        f'<line class="come" x1="{server}" y1="{back}" x2="{start + 6}" y2="{back}"/>',
        f'<path class="tipback" d="M{start} {back}l8 -4v8z"/>',
        _text(x, back - 3, _fit(answer, room), "why" if line.fault else "back"),
    ]
    return parts


def _cross(x: int, y: int) -> str:
    return f'<path class="cut" d="M{x - 6} {y - 6}l12 12M{x + 6} {y - 6}l-12 12"/>'


def _fit(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _text(x: float, y: float, text: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x}" y="{y}">{inline(text, 200)}</text>'
