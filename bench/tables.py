"""Figures of systems that are measured in turns, as a table."""

import statistics


class Table:
    """The figures of a part: for each row the values of each system. `bars`: what the first one's part of the second, or the only
    value, must be."""

    def __init__(self, title: str, systems: list[str], bars: dict[str, str] | None = None) -> None:
        self.title, self.systems, self.bars = title, systems, bars or {}
        self.rows: dict[str, dict[str, list[float]]] = {}

    def add(self, row: str, system: str, value: float) -> None:
        self.rows.setdefault(row, {}).setdefault(system, []).append(value)

    def markdown(self) -> str:
        """A line for each row: the medians of the systems with the least and the most, the first one's part of the second, the bar."""
        titles = [*self.systems, *(["ratio"] if len(self.systems) > 1 else []), "bar"]
        lines = [f"## {self.title}", "", f"| | {' | '.join(titles)} |", "| --- |" + " --- |" * len(titles)]
        for row, figures in self.rows.items():
            medians = [statistics.median(figures[system]) for system in self.systems]
            shown = [
                f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})" for values in map(figures.get, self.systems)
            ]
            ratio = [f"{medians[0] / medians[1]:.2f}"] if len(medians) > 1 else []
            lines.append(f"| {' | '.join([row, *shown, *ratio, self.bars.get(row, '')])} |")
        return "\n".join([*lines, ""])
