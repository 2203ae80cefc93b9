"""`winnow top` on a terminal, drawn by textual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Footer, Static

from winnowkv.top import CACHES, HEADS, REFRESH, Column, Failure, Row, View, Watch, ordered, shown


class FigureTable(DataTable[Text]):
    """Rows of numbers. A click on a column's name sorts by that column, another one turns the order around."""

    def __init__(self, columns: Sequence[Column], id: str) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        self._columns_shown = columns
        self._sort: tuple[int, bool] | None = None  # a column, and whether its largest value comes first
        self._rows_given: list[Row] = []
        self._cells: list[list[str]] = []  # on the terminal

    def on_mount(self) -> None:
        self.add_columns(*(column.name for column in self._columns_shown))

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        column = event.column_index
        self._sort = column, self._sort == (column, False)
        self.fill(self._rows_given)

    def fill(self, rows: list[Row]) -> None:
        """Shows these rows. The cursor and the part that is seen stay, as long as there are as many."""
        self._rows_given = rows
        if self._sort is not None:
            rows = ordered(rows, *self._sort)
        cells = [shown(self._columns_shown, row) for row in rows]
        if len(cells) != len(self._cells):
            self.clear()
            for line in cells:
                self.add_row(*(Text(cell, justify="right") for cell in line))
        else:
            for row, (before, line) in enumerate(zip(self._cells, cells)):
                for column, (old, cell) in enumerate(zip(before, line)):
                    if old != cell:
                        self.update_cell_at(Coordinate(row, column), Text(cell, justify="right"), update_width=True)
        self._cells = cells


class TopApp(App[None]):
    """The report's figures, read again each second."""

    TITLE = "winnow top"
    CSS = "#caches { height: auto; max-height: 40%; margin: 1 0; } #heads { height: 1fr; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "quit", "Quit")]

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def compose(self) -> ComposeResult:
        yield Static(id="state", markup=False)
        yield FigureTable(CACHES, id="caches")
        yield FigureTable(HEADS, id="heads")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#heads").focus()
        self.refresh_figures()
        self.set_interval(REFRESH, self.refresh_figures)

    def refresh_figures(self) -> None:
        try:
            view = self._watch.look()
        except Failure as failure:  # it may be there later
            view = View([str(failure)], [], [])
        self.query_one("#state", Static).update("\n".join(view.lines))
        self.query_one("#caches", FigureTable).fill(view.caches)
        self.query_one("#heads", FigureTable).fill(view.heads)
