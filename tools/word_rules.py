"""Words and turns of phrase that this project does not use, as patterns with their cure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.passages import Passage


@dataclass(frozen=True, slots=True)
class Rule:
    """One habit: a pattern that finds it in a passage, and the text to write instead."""

    name: str
    pattern: re.Pattern[str]
    cure: str
    in_titles_only: bool = False
    in_questions: bool = True  # also in a sentence that ends with a question mark


@dataclass(frozen=True, slots=True)
class Hit:
    """A place where a passage breaks a rule."""

    line: int
    rule: str
    found: str
    cure: str

    def __str__(self) -> str:
        return f'{self.line}: {self.rule}: "{self.found}" -> write {self.cure}'


def _words(text: str) -> str:
    return "|".join(text.split())


# The begin of a clause: of the passage, or after a full stop, colon, semicolon, dash or bracket.
CLAUSE = r"""(?:^|(?<=[.:;!?(\u2014]\s)|(?<=[(\u2014"\u201c]))[\s"'\u201c(]*"""

RELATIVE = _words("that which who whom whose what where when why how because whether if")
NO_SUBJECT = _words(
    "example instance to and or in on at of by from with as the a an its his her their our your"
    " which whom what him her me us them himself itself themselves"
)
FINITE = _words(
    "is isn't are aren't was were has have had does do don't doesn't did can can't cannot could may"
    " might must will would shall should need"
    " needs takes makes holds keeps gives knows says goes comes gets sees wants belongs means"
    " depends begins lasts stays lies loses contains appears exists happens becomes remains gave"
    " took went came got saw began lost kept made held knew said stood ran"
    " follows uses finds tells brings brought puts sets loads thinks reaches expects serves knew"
    " moves removes returns rolls lists believes cares hears"
)
BODIES = _words(
    # words: ok, the words to find
    "nobody somebody anybody everybody whoever whomever whosever whatever whatsoever"
    " someone anyone everyone"
)
BECAUSE = (
    r"(?:[,;:]\s+for|(?:^|(?<=[.;:]\s))For)\s+"
    rf"(?:it|they|he|she|we|I|you|there|then|nothing|nobody)\s+(?!(?:{NO_SUBJECT})\b)\w+"
    r"|,\s+for\s+(?:that|this|these|those)\s+(?:is|are|was|were|has|have|can|could|will|would)\b"
    rf"|,\s+for\s+(?:(?!(?:{RELATIVE}|{BODIES}|as|example|instance)\b)[\w'\u2019-]+\s+){{1,6}}?"
    rf"(?:{FINITE})\b"
)

# If such a word stands before "who", the sentence has no noun for "who" to refer to.
NOT_A_NOUN = _words(
    "of by to for from with in on at about as than like after before without over under upon"
    " and or but nor that if when while until since because so only also not then"
    " is are was were be been know knows known knew say says said tell tells told see sees saw ask"
    " asks decide decides show shows learn learns find finds"
    " it him her them he she they this suits helps serves lets gives concerns"
)
WHAT_AFTER = _words(
    "of by to for from with in on at about as than like after before without over under upon into"
    " between through against until since because so and or but nor that if when while where once"
    " onto off beyond unless"
)

# Private words of earlier days, and the terms that replace them.
NAMES = {
    r"bur(?:y|ies|ied|ying)": '"kill", "put into the dead set"',
    r"graves?": '"dead set"',
    r"dice": '"jitter", "random numbers"',
    r"settlers?": '"outcome writer"',
    r"chores?": '"periodic check"',
    r"lanes?": '"sandbox"',
    r"outlets?": '"delivery", "transport"',
    r"(?:ha(?:s|ve|d)|ta(?:kes?|ken)|took|g[eo]ts?|gives?|pass(?:es|ed)?|keeps?|kept) the turn": (
        '"is the leader", "the leader"'
    ),
}

PERSON = "name the person, thread, process or program"
RULES = (
    Rule(
        "is-no",
        re.compile(
            r"\b(?<!there )(?<!There )(?:is|are|was|were|be|been|isn't|am|it's)(?<!There's) no\b"
            r"(?! (?:longer|more|less|fewer|later|earlier|sooner|further|greater|better|worse"
            r"|smaller|larger|older|newer|one)\b)"
        ),
        '"is not a", "are not", or say what it is',
    ),
    Rule("for-because", re.compile(BECAUSE), '"because", or a sentence of its own'),
    Rule(
        "headless",
        re.compile(rf"\b(?:{BODIES}|no one)\b", re.IGNORECASE),
        f'a noun: {PERSON} ("no process", "any client")',
        in_questions=False,
    ),
    Rule(
        "headless",
        re.compile(
            rf"{CLAUSE}(?:Who|Whom|Whose|What|who|whom|whose|what)\b"
            r"|(?<=, )(?:what|whom)\b",
        ),
        f'a noun as the subject: {PERSON}, or "the value that"',
        in_questions=False,
    ),
    Rule(
        "headless",
        re.compile(rf"\b(?:{NOT_A_NOUN}),? who(?:m|se)?\b", re.IGNORECASE),
        f'a noun before it: {PERSON} ("the thread that")',
        in_questions=False,
    ),
    Rule(
        "headless",
        re.compile(rf"\b(?:{WHAT_AFTER}) what\b", re.IGNORECASE),
        'a noun: "the value that", "the jobs that", "the work that"',
        in_questions=False,
    ),
    Rule(
        "title",
        re.compile(
            r"^[\s\"'\u201c]*(?:How(?!-to\b)|Which|What|Whether|Where|Who|Whom|Whose|Why|When)\b.*"
        ),
        'a noun phrase ("Filters that select entries", "True if ...", "Time of ...")',
        in_titles_only=True,
        in_questions=False,
    ),
    Rule("phrase", re.compile(r"\bin turn\b", re.IGNORECASE), '"interleaved" or "one by one"'),
    Rule("phrase", re.compile(r"\bby a hair\b", re.IGNORECASE), "the difference, with its unit"),
    Rule("phrase", re.compile(r"\bas ever\b", re.IGNORECASE), '"as before", or nothing'),
    Rule("phrase", re.compile(r"\binside of\b", re.IGNORECASE), '"inside"'),
    Rule(
        "phrase",
        re.compile(
            r"(?<!\bare )(?<!\bis )(?<!\bwere )(?<!\bnot )\ball the same\b(?! \w)", re.IGNORECASE
        ),
        '"nevertheless", or nothing',
    ),
    Rule("phrase", re.compile(r",? too(?=\s*(?:[.;:!?)]|$))"), '"also" before the verb'),
    Rule(
        "phrase",
        re.compile(
            r"\b(?:faster|slower|cheaper|dearer|larger|smaller|better|worse|more|less|little|small|much"
            r"|nothing|figures?|measured|costs?|times) beside\b"
        ),
        '"compared with"',
    ),
    *(
        Rule("name", re.compile(rf"(?<![\w-]){old}(?![\w-])", re.IGNORECASE), new)
        for old, new in NAMES.items()
    ),
)


def hits(passage: Passage) -> Iterator[Hit]:
    """Yield the places of a passage that break a rule, each place once, in order."""
    taken: list[range] = []
    places: list[tuple[int, Hit]] = []
    # A title is judged as a title first: its first word would break a second rule.
    for rule in sorted(RULES, key=lambda rule: not rule.in_titles_only):
        if rule.in_titles_only and not passage.is_title:
            continue
        for match in rule.pattern.finditer(passage.text):
            start = match.start() + len(match[0]) - len(match[0].lstrip(" \"'\u201c(,"))
            if not rule.in_questions and _is_question(passage.text, match.start()):
                continue
            if any(start in other for other in taken):
                continue
            taken.append(range(start, start + 1 if rule.in_titles_only else match.end()))
            quotation = _quotation(passage.raw, start, match.end())
            places.append((start, Hit(passage.line_at(start), rule.name, quotation, rule.cure)))
    for _, hit in sorted(places, key=lambda place: place[0]):
        yield hit


def _is_question(text: str, offset: int) -> bool:
    """True if the sentence that holds `offset` ends with a question mark."""
    end = re.compile(r"[.!?](?=[\s\"'\u201d)]|$)").search(text, offset + 1)
    return end is not None and end[0] == "?"


def _quotation(text: str, start: int, end: int) -> str:
    """Return the words from `start` to `end` with two more on either side, cut if many."""
    before = " ".join(text[:start].split()[-2:])
    there = text[start:end].strip()
    after = " ".join(text[end:].split()[:2])
    if len(there) > 60:
        return there[:60].rsplit(" ", 1)[0] + " ..."
    return " ".join(filter(None, (before, there, after)))
