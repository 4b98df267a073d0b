"""Text and tables of a chosen look through rich, which takes foreign text as it is: no markup, emoji or highlighting."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvforensics.report.wording import ascii_only

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from rich.console import RenderableType

    from kvforensics.report.look import Look


class Sheet:
    """A page being filled."""

    def __init__(self, look: Look, *, colour: bool) -> None:
        self.ascii = look.ascii_only
        self.width = look.columns
        self._colour = colour
        self._gap = 1 if self.width < 100 else 2
        self._file = io.StringIO()
        self._console = Console(
            file=self._file, width=self.width, height=50, force_terminal=colour, legacy_windows=False,
            color_system="standard" if colour else None, markup=False, emoji=False, highlight=False,
        )  # fmt: skip

    def text(self, text: str, style: str = "") -> Text:
        """Give text for a line or a cell."""
        return Text(ascii_only(text) if self.ascii else text, style, overflow="fold")

    def print(self, *items: RenderableType) -> None:
        """Print lines and tables below what is there."""
        for item in items:
            self._console.print(item)

    def grid(
        self,
        rows: Iterable[Sequence[Text]],
        heads: Sequence[str],
        *,
        right: Collection[str] = (),
        unbroken: Collection[int] = (),
        section: int | None = None,
    ) -> Table:
        """Lay rows out under `heads`: `right` are flush right, the columns `unbroken` never wrap, `section` begins apart."""
        rule = "-" if self.ascii else "─"
        box = Box("    \n    \n" + f" {rule}{rule} \n" + "    \n" * 5, ascii=self.ascii)
        table = Table(
            box=box, show_header=any(heads), pad_edge=False, show_edge=False, header_style="dim", padding=0
        )  # rich's own padding takes half as long again
        for i, head in enumerate(heads):
            flush = "right" if head in right else "left"
            table.add_column(self.text(head), justify="right" if flush == "right" else "left", no_wrap=i in unbroken)
        for i, row in enumerate(rows):
            if i == section:
                table.add_section()
            self._add(table, row)
        return table

    def _add(self, table: Table, cells: Sequence[Text]) -> None:
        for column, cell in zip(table.columns[:-1], cells, strict=False):
            if cell and column.justify == "right":
                cell.pad_left(self._gap)
            elif cell:
                cell.pad_right(self._gap)
        table.add_row(*cells)

    def listing(self, title: str, lines: Sequence[str], style: str = "bold") -> None:
        """Print a titled list, if it holds anything; a long line hangs below its own beginning."""
        if lines:
            rows = [(self.text("-"), self.text(line)) for line in lines]
            self.print("", self.text(title, style), self.grid(rows, ("", ""), unbroken=(0,)))

    def finished(self) -> str:
        """Give what was printed; without colour, lines end where their text does."""
        text = self._file.getvalue()
        return text if self._colour else "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
