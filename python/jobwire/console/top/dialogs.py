"""Questions to the person: yes or no, and one line of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from jobwire.console.top.styled_text import Part, joined

__all__ = ["AskLine", "Confirm", "ReadText"]


class Confirm(ModalScreen[bool]):
    """Asks a question whose answer is yes or no.

    Args:
        lines: The question; its lines are already safe to show.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        with Vertical(classes="dialog"):
            lines = [*([line] for line in self._lines), [""], ["y  yes    n  no"]]
            yield Static(joined(lines), markup=False)

    def action_answer(self, answer: bool) -> None:
        """Give the answer."""
        self.dismiss(answer)


class AskLine(ModalScreen[str | None]):
    """Asks for one line of text; None if the person gives up.

    Args:
        question: The question.
        hint: The form of the answer.
        value: The line to begin with.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "Give up")]

    def __init__(self, question: str, *, hint: str = "", value: str = "") -> None:
        super().__init__()
        self._question, self._hint, self._value = question, hint, value

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        with Vertical(classes="dialog"):
            yield Static(self._question, markup=False)
            yield Input(self._value, id="line")
            yield Static(f"{self._hint}\nenter  continue    esc  cancel", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give the answer."""
        self.dismiss(event.value)

    def action_give_up(self) -> None:
        """Close it without an answer."""
        self.dismiss(None)


class ReadText(ModalScreen[None]):
    """Shows a text that may be long.

    Args:
        lines: The lines.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "close", "Close")
    ]

    def __init__(self, lines: Sequence[Sequence[Part]]) -> None:
        super().__init__()
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        with VerticalScroll(classes="dialog tall"):
            yield Static(joined([*self._lines, [""], ["esc  close"]]), markup=False)

    def action_close(self) -> None:
        """Close it."""
        self.dismiss(None)
