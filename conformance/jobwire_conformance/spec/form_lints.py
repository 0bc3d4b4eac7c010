"""Lints of the form of SPEC.md, which `jobwire spec check --strict` counts as faults.

They judge language by its form, so they find most blocks with a fault and a few without one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator

from jobwire_conformance.spec.document import CITATION, Document, Requirement

__all__ = ["LINTS", "LOOKED_AT", "OF_BLOCKS", "Hit", "hits"]

Hit = tuple[int, str, str]
"""Line, lint and problem."""

_CODE = re.compile(r"`[^`]*`")
_PARENTHESES = re.compile(r" ?\([^()]*\)")

# -- clause

_MAX_WORDS = 45
# A second sentence that introduces a list belongs to the first one.
_SECOND_SENTENCE = re.compile(r"[.!?] +(?=[A-Z\"])(?!.*:$)")
_SECOND_CLAUSE = re.compile(
    r"[,:] (?:and|but|so|or) (?:(?:it|they|its|their|each|no|never|only(?! if)|then|also)\b"
    r"|(?:the|a|an|every) \w+ (?:is|are|has|have|does|do|gets?|stays?|goes|go|takes?|must)\b)"
    r"|, (?:and|but|so) not\b"
)

# -- alone

# The site and the data show a block on a page of its own, so it may point only at its own words.
_BEFORE_THAT = "of|in|by|for|with|from|to|at|on|as|where|when|if|after|before"
_NO_NOUN = "of|in|that|which|whose|from|as|is|are|was|do|stands?|order|moment|instant|many"
_COUNT = "two|three|four|five|six|seven|eight|nine|ten"
_POINTER = re.compile(
    rf"(?:(?:^|\b(?:{_BEFORE_THAT}) )(?P<far>that|those)"
    rf"|\b(?P<near>such(?: an?)?|this|these)|^The same|\bthe(?= (?:{_COUNT}) ))"
    rf"(?: (?:{_COUNT}))? (?!(?:{_NO_NOUN}|{_COUNT})\b)(?P<noun>[a-z]\w+)\b"
    r"(?! of (?:list|table) )",
    re.IGNORECASE,
)
_PLACE = re.compile(
    r"\b(?:lists?|tables?|steps?|examples?|blocks?|sections?) (?:above|below)\b", re.IGNORECASE
)

# -- bound

_VAGUE = re.compile(
    r"(?<=MUST )retry\b|(?<=and )retry\b|(?<=to )retry\b|\blater(?=[.,;])"
    r"|\b(?:retries|again|pauses?|soon|in time|eventually|periodically|regularly|promptly"
    r"|quickly|immediately|for a while|for some time|from time to time)\b"
)
_BOUND = re.compile(
    r"\d|\b(?:once|twice|one|two|three|four|five|six|seven|eight|nine|ten|no more than|exactly"
    r"|never|before|after|until|when|while|whenever|as soon as|every|the next|its next"
    r"|at the first)\b"
)

# -- term

# Words that have a special meaning in job queues. Section 3 has to define each that blocks use.
_VOCABULARY = {
    "acknowledge": r"acknowledg(?:e|es|ed|ing)",
    "abort": r"abort(?:s|ed|ing)?",
    "batch": r"batch(?:es)?",
    "beat": r"beats?",
    "capsule": r"capsules?",
    "cursor": r"cursors?",
    "dead set": r"dead set",
    "death handler": r"death handlers?",
    "definition": r"definitions?",
    "due": r"due",
    "executor": r"executors?",
    "exhausted": r"exhausted",
    "generation": r"generations?",
    "hard stop": r"hard stop",
    "identity": r"identit(?:y|ies)",
    "iteration": r"iterations?",
    "lease": r"leases?",
    "old sidekiq": r"old Sidekiqs?",
    "middleware": r"middleware",
    "orphan": r"orphan(?:s|ed)?",
    "outcome": r"outcomes?",
    "owner": r"owners?",
    "paused": r"paused",
    "payload": r"payloads?",
    "poison": r"poison(?:ed|ous)?",
    "private": r"private (?:entry|entries|hash|hashes)",
    "process": r"process(?:es)?",
    "promote": r"promot(?:e|es|ed|er|ers|ing|ion)",
    "put back": r"(?:puts?|putting) back",
    "quiet": r"quiet",
    "recover": r"recover(?:s|ed|y|ing)?",
    "refusal": r"refusals?",
    "score": r"scores?",
    "slice": r"slices?",
    "truthy": r"truthy",
    "unreadable": r"unreadable",
    "usable queue name": r"usable queue names?",
    "yield": r"yield(?:s|ed|ing)?",
}
_TERMS = "| Term | Meaning |"
_FORBIDDEN = "| Not used | Written instead |"

# -- cell

_BINDING = re.compile(r"\b(?:must|shall|should|has to|have to)\b")
_ITEM = re.compile(r"\s*(?:\||- |\d+\. )")
_NUMBERED = re.compile(r"(?P<kind>Table|List) (?P<number>[0-9A-Z]+-\d+): ")
_REFERENCE = re.compile(
    r"\b(?P<kind>Table|List|table|list)s? (?P<numbers>\d+-\d+(?:(?:,| and) \d+-\d+)*)"
)
# Sections about this document: they do not describe implementations.
_ABOUT_TEXT = {"1", "2", "3", "26", "27"}

# -- promise

# Genuine Sidekiq meets an interop block, so its "Seen in" line takes nothing back.
_TAKES_BACK = re.compile(r"\b(?:but|which take|cut|does not)\b")
_DIGITS = {"6.4": "6", "7.3": "7", "8.1": "8"}
LOOKED_AT = {
    "ENV-3": "the time that 7.3 adds makes its timeout longer, as the block asks",
    "FETCH-4": "equal weights draw the same order in 6, under another name",
    "GEN-1": "the sentence names the readers of this form",
    "ITER-1": "7.3.2 cannot cancel, so the field is absent, as its row allows",
    "PAY-3": "it says what readers do, and the block is about writers",
    "RETRY-4": "6.2.1 is not of generation 6.4",
    "RETRY-11": "the block is about whole numbers",
    "SCHED-8": "6.4.1 counts earlier, by the same rule",
    "SCHED-13": "no client adds the field, and a field of the caller is left open",
    "STAT-1": "6.4 has no claim to metrics, which the columns are about",
}
"""Interop blocks whose "Seen in" line looks as if it took something back, and why it does not."""

# -- caption

_FIGURE = re.compile(r"Figure (?P<number>[0-9A-Z]+-\d+): ")


def hits(document: Document, recorded: Container[str]) -> list[Hit]:
    """Return the hits of all lints, in the order of lines.

    Args:
        document: The specification.
        recorded: The ids with a recorded run of genuine Sidekiq.
    """
    found = [(line, lint, text) for lint, run in LINTS.items() for line, text in run(document)]
    found += [(line, "seen-in", text) for line, text in unseen(document, recorded)]
    return sorted(found)


def _blocks(document: Document) -> Iterator[Requirement]:
    return (requirement for requirement in document.requirements if requirement.retired is None)


def _sentence(requirement: Requirement) -> str:
    """Return the sentence of a block without code, parentheses, list items and tables."""
    lines = [line for line in requirement.text.splitlines() if not _ITEM.match(line)]
    plain = _CODE.sub("x", " ".join(lines)).replace("**", "")
    return _PARENTHESES.sub("", plain).strip()


def _clauses(document: Document) -> Iterator[tuple[int, str]]:
    for requirement in _blocks(document):
        sentence = _sentence(requirement)
        words = len(re.findall(r"[^\W\d]+", sentence))
        if ";" in sentence:
            problem = "a semicolon joins two clauses"
        elif _SECOND_SENTENCE.search(sentence):
            problem = "it has two sentences"
        elif second := _SECOND_CLAUSE.search(sentence):
            problem = f"'{second[0].strip(', :')}' begins a second clause"
        elif words > _MAX_WORDS:
            problem = f"it has {words} words, more than {_MAX_WORDS}"
        else:
            continue
        yield requirement.line, f"{requirement.id}: {problem}; a block asks for one thing"


def _bounds(document: Document) -> Iterator[tuple[int, str]]:
    for requirement in _blocks(document):
        if requirement.keyword != "MUST":  # "never again" is a bound
            continue
        plain = " ".join(_CODE.sub("x", requirement.text).replace("**", "").split())
        text = CITATION.sub("", plain)
        vague = _VAGUE.search(text)
        if vague is not None and _BOUND.search(text) is None:
            yield (
                requirement.line,
                f"{requirement.id}: '{vague[0]}' has no bound; name a number, a time or an event",
            )


def _words_of_section_3(document: Document) -> Iterator[tuple[int, str]]:
    terms = ", ".join(_first_cells(document, _TERMS)).lower()
    forbidden = {
        word.strip(): instead
        for words, instead in _rows(document, _FORBIDDEN)
        for word in words.replace("`", "").split(",")
    }
    for requirement in _blocks(document):
        text = _CODE.sub("x", requirement.text)
        for term, forms in _VOCABULARY.items():
            if not re.search(rf"\b{term}", terms) and re.search(rf"\b{forms}\b", text):
                yield requirement.line, f"{requirement.id}: section 3 does not define '{term}'"
        notes = _CODE.sub("x", f"{requirement.why}\n{requirement.seen or ''}")
        for word, instead in forbidden.items():
            if re.search(rf"\b{re.escape(word)}\w*", f"{text}\n{notes}", re.IGNORECASE):
                problem = f"section 3 does not use '{word}'; write {instead}"
                yield requirement.line, f"{requirement.id}: {problem}"


def _alone(document: Document) -> Iterator[tuple[int, str]]:
    for requirement in _blocks(document):
        sentence = _sentence(requirement)
        pointers = [place[0] for place in _PLACE.finditer(sentence)]
        pointers += [
            pointer[0]
            for pointer in _POINTER.finditer(sentence)
            if not _is_named(pointer, sentence, requirement)
        ]
        for pointer in pointers:
            problem = f"'{pointer}' points outside of the block; name the thing or an id"
            yield requirement.line, f"{requirement.id}: {problem}"


def _is_named(pointer: re.Match[str], sentence: str, requirement: Requirement) -> bool:
    """True if the noun of a pointer stands before it, or is the block's own table or list."""
    if pointer["noun"].lower().rstrip("s") in sentence[: pointer.start()].lower():
        return True
    has_items = any(_ITEM.match(line) for line in requirement.text.splitlines())
    return has_items and pointer["near"] is not None


def _first_cells(document: Document, head: str) -> Iterator[str]:
    return (cells[0] for cells in _rows(document, head))


def _rows(document: Document, head: str) -> Iterator[tuple[str, str]]:
    """Yield the rows of the table of two columns with this head."""
    lines = [line for _, line in document.outside]
    for line in lines[lines.index(head) + 2 :] if head in lines else ():
        if not line.startswith("|"):
            return
        first, _, second = line.strip("| ").partition(" | ")
        yield first, second


def _cells(document: Document) -> Iterator[tuple[int, str]]:
    fenced = {
        number
        for fence in document.fences
        for number in range(fence.line - 1, fence.line + fence.text.count("\n") + 2)
    }
    captions: dict[str, int] = {}
    lines = dict(document.outside)
    for number, line in document.outside:
        if number in fenced:
            continue
        word = _BINDING.search(_CODE.sub("x", line)) if _ITEM.match(line) else None
        if word and _section(document, number) not in _ABOUT_TEXT:
            yield number, f"'{word[0]}' binds without an id; make a block of it, or say what is"
        if caption := _NUMBERED.match(line):
            captions[f"{caption['kind'].lower()} {caption['number']}"] = number
            if caption["number"].partition("-")[0] != _section(document, number).partition(".")[0]:
                yield number, f"{caption['kind']} {caption['number']} is in another section"
            following = [lines.get(number + after, "") for after in (1, 2, 3)]
            if not any(_ITEM.match(text) for text in following):
                yield number, f"no {caption['kind'].lower()} follows its caption"
    named: set[str] = set()
    for requirement in _blocks(document):
        for reference in _REFERENCE.finditer(" ".join(requirement.text.split())):
            for found in re.findall(r"\d+-\d+", reference["numbers"]):
                name = f"{reference['kind'].lower()} {found}"
                named.add(name)
                if name not in captions:
                    yield requirement.line, f"{requirement.id}: there is no {name}"
    for name, number in captions.items():
        if name not in named:
            yield number, f"no block refers to {name}, so it does not bind"


def _section(document: Document, line: int) -> str:
    """Return the number of the section around a line; empty before the first."""
    numbers = [section.number for section in document.sections if section.line <= line]
    return numbers[-1] if numbers else ""


def _profiles(document: Document) -> Iterator[tuple[int, str]]:
    asked = {claim for requirement in _blocks(document) for claim in requirement.claims}
    lines = {line.partition(" |")[0]: number for number, line in reversed(document.outside)}
    for name in document.profiles:
        if name not in asked:
            yield lines[f"| {name}"], f"no requirement belongs to {name}"
    for requirement in _blocks(document):
        for claim in requirement.claims:
            if claim not in document.profiles:
                yield requirement.line, f"{requirement.id}: {claim} has no row in the table"


def unseen(document: Document, recorded: Container[str]) -> Iterator[tuple[int, str]]:
    """Yield line and problem of each "Seen in" line that no recorded run shows."""
    for requirement in _blocks(document):
        if requirement.seen is not None and requirement.id not in recorded:
            yield (
                requirement.line,
                f"{requirement.id}: no recorded run shows 'Seen in: …'; name the id in a test of "
                "python/tests/interop, or in fixtures/index.json",
            )


def _promises(document: Document) -> Iterator[tuple[int, str]]:
    for requirement in _blocks(document):
        if requirement.level != "interop" or requirement.id in LOOKED_AT:
            continue
        seen = " ".join(_CODE.sub("x", requirement.seen or "").split())
        own = "|".join(_DIGITS[generation] for generation in requirement.generations)
        # A generation may stand alone or as a release, but not as a part of another number.
        after = re.search(rf";[^.;]*?(?<![\d.·])(?:{own})(?:\.\d+)*(?![\d·]| s\b)", seen)
        if found := _TAKES_BACK.search(seen) or after:
            yield (
                requirement.line,
                f"{requirement.id}: 'Seen in: … {found[0].strip()} …' seems to take something "
                "back; split the block, or list it in LOOKED_AT with the reason",
            )


def _captions(document: Document) -> Iterator[tuple[int, str]]:
    lines = dict(document.outside)
    first: dict[str, int] = {}
    for fence in document.fences:
        if fence.language != "mermaid":
            continue
        end = fence.line + fence.text.count("\n") + 2
        after = next((lines[n] for n in range(end, end + 3) if lines.get(n, "").strip()), "")
        caption = _FIGURE.match(after)
        if caption is None:
            yield fence.line - 1, "no caption follows the diagram; write 'Figure 11-1: …'"
        elif caption["number"] in first:
            problem = f"Figure {caption['number']} is already on line {first[caption['number']]}"
            yield fence.line - 1, problem
        else:
            first[caption["number"]] = fence.line - 1


LINTS: dict[str, Callable[[Document], Iterator[tuple[int, str]]]] = {
    "clause": _clauses,
    "alone": _alone,
    "bound": _bounds,
    "term": _words_of_section_3,
    "cell": _cells,
    "profile": _profiles,
    "promise": _promises,
    "caption": _captions,
}
OF_BLOCKS = ("clause", "alone", "bound")
"""The lints that also look at the blocks of annexes, which have no sections."""
