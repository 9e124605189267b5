"""Draws the curves that `make bench-scale` measured: one SVG for each JSON file.

scale_charts.py FOLDER_OF_JSON FOLDER_OF_SVG
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

from curves import Curve, short, stored

# The same curve gives the same file; text stays text.
mpl.rcParams["svg.hashsalt"] = "offsetlog"
mpl.rcParams["svg.fonttype"] = "none"


def draw(curve: Curve, path: Path) -> None:
    """One chart."""
    figure, axes = plt.subplots(figsize=(8, 4.5))
    for series in curve.series:
        sizes, costs = zip(*sorted(series.points), strict=True)
        axes.plot(sizes, costs, marker="o", markersize=3, linewidth=1.2, label=series.name)
    if not curve.linear:
        axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, curve.size_unit)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, curve.cost_unit)))
    axes.set_xlabel(curve.size)
    axes.set_ylabel(curve.cost)
    axes.set_title(curve.title, fontsize=10)
    axes.grid(visible=True, which="major", linewidth=0.4)
    axes.legend(fontsize=7)
    figure.text(0.99, 0.01, curve.machine, ha="right", fontsize=6)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(source: Path, target: Path) -> None:
    """Draws all."""
    target.mkdir(parents=True, exist_ok=True)
    for curve in stored(source):
        path = target / f"{curve.name}.svg"
        draw(curve, path)
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
