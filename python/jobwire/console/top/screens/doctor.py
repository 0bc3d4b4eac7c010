"""Problems of this Redis, its queues and its processes."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from jobwire.console.ops.doctor import Finding
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen
from jobwire.console.top.styled_text import Cell, Part, joined
from jobwire.inspect.formats import clean
from jobwire.text import counted

__all__ = ["Doctor"]

STYLES = {"error": "bad", "warning": "warn", "note": "name"}


class Doctor(DataScreen[list[Finding]]):
    """The findings of the doctor.

    Args:
        context: The parts that all screens share.
    """

    polled = False

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context, "doctor")

    def body(self) -> ComposeResult:
        """Yield the text."""
        with VerticalScroll(classes="page"):
            yield Static("examining …", id="findings", markup=False)

    def read_data(self) -> list[Finding]:
        """Return the findings."""
        return self.context.operations.doctor()

    def show_data(self, data: list[Finding]) -> None:
        """Show the findings, errors first."""
        lines: list[list[Part]] = []
        for one in data:
            lines += [
                [Cell(f"{one.severity}  ", STYLES[one.severity]), Cell(one.code, "head")],
                [f"  {clean(one.sentence)}"],
                [Cell(f"  -> {clean(one.remedy)}", "dim")],
                [""],
            ]
        self.query_one("#findings", Static).update(joined(lines or [["nothing is wrong"]]))
        self.say(f"{counted(len(data), 'finding')}; F5 examines again")
