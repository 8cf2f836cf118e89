"""The results of `make bench`: the table, the same table in README.md, and the plot. Do not edit them by hand."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.measured import Measured

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
TABLE, PLOT = RESULTS / "table.md", RESULTS / "bring-up.svg"
README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- benchmarks/results/table.md -->\n", "<!-- end of benchmarks/results/table.md -->\n"


def write(lines: Sequence[Measured], by_nodes: Mapping[str, Mapping[int, float]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    TABLE.write_text(table(lines))
    PLOT.write_text(plot(by_nodes))
    before, rest = README.read_text().split(BEGIN)
    README.write_text(before + BEGIN + TABLE.read_text() + END + rest.split(END)[1])


def table(lines: Sequence[Measured]) -> str:
    """Return the Markdown table, preceded by the machine it was measured on."""
    rows = [[line.what, line.value, line.goal, line.verdict, line.detail] for line in lines]
    text = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, Ray {_ray()}"
    head = (
        f"Written by `make bench` on a machine with {machine}.\n\n| what | measured | goal | | medians and details |\n"
    )
    return head + "|---|---|---|---|---|\n" + "".join(f"| {row} |\n" for row in text)


def _ray() -> str:
    from importlib.metadata import version

    return version("ray")


# The plot: plain SVG. The colors stay distinguishable with color blindness.
COLORS = {"docs": "#d55e00", "symmetric": "#0072b2", "floor": "#666666", "ours": "#009e73"}
NAMES = {
    "docs": "the script of Ray's documentation",
    "symmetric": "ray symmetric-run",
    "floor": "by hand, without Slurm",
    "ours": "slurm-launch",
}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 60, 230, 50, 50


def plot(by_nodes: Mapping[str, Mapping[int, float]]) -> str:
    """Return an SVG: seconds until a driver sees all nodes, by number of nodes, one line per method."""
    nodes = sorted({size for points in by_nodes.values() for size in points})
    most = max(seconds for points in by_nodes.values() for seconds in points.values())
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if most / step <= 7)
    top = step * (int(most / step) + 1)

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (size - nodes[0]) / max(1, nodes[-1] - nodes[0])

    def y(seconds: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * seconds / top

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="25" font-size="16">Seconds from the job\'s first line until Ray runs on all nodes</text>',
    ]
    for seconds in range(0, top + 1, step):
        parts.append(f'<path d="M{LEFT} {y(seconds):.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(seconds) + 4:.1f}" text-anchor="end">{seconds}</text>')
    for size in nodes:
        parts.append(f'<text x="{x(size):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{size}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">nodes (medians, all on one machine)</text>'
    )
    labels = _apart({way: y(points[nodes[-1]]) for way, points in by_nodes.items()})
    for way, points in by_nodes.items():
        places = [(x(size), y(seconds)) for size, seconds in sorted(points.items())]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLORS[way]}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{COLORS[way]}"/>' for a, b in places]
        label = f"{NAMES[way]}, {points[nodes[-1]]:.0f} s"
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{labels[way] + 4:.1f}" fill="{COLORS[way]}">{label}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _apart(places: Mapping[str, float], least: float = 17) -> dict[str, float]:
    """Return the labels' heights, moved down where two would overlap."""
    moved: dict[str, float] = {}
    below = float("-inf")
    for way, place in sorted(places.items(), key=lambda item: item[1]):
        below = moved[way] = max(place, below + least)
    return moved
