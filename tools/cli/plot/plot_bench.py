#!/usr/bin/env python3
"""Draws saved results of `tutti bench --json`: time and bandwidth over size, one line per library, algorithm or ceiling.

Knows the fields of the JSON lines, nothing of how they were measured.
Usage: plot_bench.py RESULTS.json [MORE.json ...] OUTPUT.png|svg
A comparison (--against) and the bounds of another run (--roofline) go into one picture when both files are given.
Exit status: 0 drawn, 2 wrong arguments or input, 3 matplotlib is not installed.
"""
import json
import sys

NO_MATPLOTLIB = 3


def read_rows(paths):
    """All rows that have a size; a `total` row of a workload is no point of a curve, a `line` has one size only."""
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                    row["bytes"], row["p50_us"]
                    row["rate"] = row["GBs"] if "ceiling" in row else row["busbw_GBs"]
                except (ValueError, KeyError, TypeError) as error:
                    sys.exit(f"plot_bench.py: {path}, line {number}: no result of tutti bench ({error})")
                if row.get("row") != "total" and row.get("ceiling") not in ("line", "exchange"):
                    rows.append(row)
    return rows


def bound_of(row):
    """The row as it would be if the bound were reached."""
    return {**row, "ceiling": "bound", "p50_us": row["bound_us"], "rate": row["rate"] * row["p50_us"] / row["bound_us"]}


def label_of(row, has_libraries):
    """A comparison has a curve per library; otherwise there is one per collective and run."""
    if "ceiling" in row:
        return row["ceiling"]
    if has_libraries:
        return row.get("library") or "tutti"
    return f'{row["collective"]}, {row["ranks"]} ranks, {row["transport"]}'


def make_curves(rows):
    """Beside a comparison, rows with bounds are another run: only their bounds are drawn."""
    has_libraries = any(row.get("library") for row in rows)
    bounds = [bound_of(row) for row in rows if row.get("bound_us")]
    curves = {}
    for row in [row for row in rows if row.get("library") or not (has_libraries and row.get("bound_us"))] + bounds:
        curves.setdefault(label_of(row, has_libraries), []).append(row)
    for points in curves.values():
        points.sort(key=lambda row: row["bytes"])
    return curves


def title_of(row):
    if "ceiling" in row:
        return f'ceilings of {row["ranks"]} ranks at work on one node'
    place = ", in place" if row["in_place"] else ""
    return f'{row["collective"]} of {row["dtype"]}, {row["ranks"]} ranks on {row["nodes"]} node(s){place}'


def size_text(value, _position=None):
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:g} {unit}"
        value /= 1024
    return f"{value:g} GiB"


def draw(rows, output):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, LogLocator

    is_machine = "ceiling" in rows[0]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2))
    for label, points in make_curves(rows).items():
        is_own = label.startswith("tutti")
        style = {"marker": "o", "markersize": 3, "linewidth": 2.2 if is_own else 1.3, "label": label, "zorder": 3 if is_own else 2}
        if label == "bound":
            style.update(linestyle="--", color="black", marker=None)
        sizes = [max(row["bytes"], 1) for row in points]
        left.plot(sizes, [row["p50_us"] for row in points], **style)
        right.plot(sizes, [row["rate"] for row in points], **style)
    titles = ("time, median (us)", "bandwidth of each rank (GB/s)") if is_machine else ("time of a call, median (us)", "bus bandwidth (GB/s)")
    for axes, title in zip((left, right), titles):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(LogLocator(base=16))
        axes.xaxis.set_major_formatter(FuncFormatter(size_text))
        axes.set_xlabel("bytes moved by each rank" if is_machine else "size of the full vector")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    left.set_yscale("log")
    if is_machine:
        right.set_yscale("log")
    else:
        right.set_ylim(bottom=0)
    right.legend(fontsize=8, frameon=False)
    figure.suptitle(title_of(rows[0]), fontsize=11)
    figure.tight_layout()
    figure.savefig(output, dpi=150)


def main(arguments):
    if len(arguments) < 2 or not arguments[-1].endswith((".png", ".svg")):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        print("plot_bench.py: this python3 has no matplotlib", file=sys.stderr)
        return NO_MATPLOTLIB
    rows = read_rows(arguments[:-1])
    if not rows:
        print("plot_bench.py: there are no results to draw", file=sys.stderr)
        return 2
    draw(rows, arguments[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
