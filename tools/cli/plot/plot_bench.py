#!/usr/bin/env python3
"""Draws saved results of `tutti bench --json`: time and bandwidth over size, one line per library, algorithm or ceiling.

Knows the fields of the JSON lines, nothing of how they were measured.
Usage: plot_bench.py [--about ABOUT.json] RESULTS.json [MORE.json ...] OUTPUT.png|svg|html
A comparison (--against) and the bounds of another run (--roofline) go into one picture when both files are given.
A page (.html) also holds the table, and of ABOUT.json the settings and the machine. Only a .png needs matplotlib.
Exit status: 0 drawn, 2 wrong arguments or input, 3 matplotlib is not installed.
"""

import json
import sys

import result_page
import svg_chart

NO_MATPLOTLIB = 3


def read_rows(paths):
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
                rows.append(row)
    return rows


def points_of(rows):
    """Those of a curve: a `total` row of a workload is no point of one, a `line` has one size only."""
    return [row for row in rows if row.get("row") != "total" and row.get("ceiling") not in ("line", "exchange")]


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


def counted(count, noun):
    return f'{count} {noun}{"" if count == 1 else "s"}'


def title_of(row):
    if "ceiling" in row:
        return f'ceilings of {counted(row["ranks"], "rank")} at work on one node'
    place = ", in place" if row["in_place"] else ""
    return f'{row["collective"]} of {row["dtype"]}, {counted(row["ranks"], "rank")} on {counted(row["nodes"], "node")}{place}'


def axis_titles(rows):
    """Of the sizes, the times and the bandwidths."""
    if "ceiling" in rows[0]:
        return "bytes moved by each rank", "time, median (us)", "bandwidth of each rank (GB/s)"
    return "size of the full vector", "time of a call, median (us)", "bus bandwidth (GB/s)"


def charts_of(rows):
    """Time and bandwidth over size."""
    curves = make_curves(rows)
    x_label, time_label, rate_label = axis_titles(rows)
    times = {label: [(row["bytes"], row["p50_us"]) for row in points] for label, points in curves.items()}
    rates = {label: [(row["bytes"], row["rate"]) for row in points] for label, points in curves.items()}
    is_machine = "ceiling" in rows[0]
    return [svg_chart.Chart(time_label, times, x_label, "us", True), svg_chart.Chart(rate_label, rates, x_label, "GB/s", is_machine)]


def draw_svg(rows, output):
    charts, top = charts_of(rows), 34
    height = charts[0].height
    inner = "".join(f'<g transform="translate({i * svg_chart.WIDTH} {top})">\n{chart.body()}\n</g>\n' for i, chart in enumerate(charts))
    title = svg_chart.escape(title_of(rows[0]))
    width = len(charts) * svg_chart.WIDTH
    with open(output, "w", encoding="utf-8") as file:
        file.write(
            f'<?xml version="1.0" encoding="utf-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + top}" width="{width}" '
            f'height="{height + top}" role="img" font-family="sans-serif" font-size="12">\n<title>{title}</title>\n<style>\n{svg_chart.style()}\n</style>\n'
            f'<rect width="100%" height="100%" class="paper"/>\n<text x="{width / 2:.0f}" y="22" class="ink" font-size="15" text-anchor="middle">{title}</text>\n'
            f"{inner}</svg>\n"
        )


def draw_png(rows, output):
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
    x_label, *titles = axis_titles(rows)
    for axes, title in zip((left, right), titles):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(LogLocator(base=16))
        axes.xaxis.set_major_formatter(FuncFormatter(svg_chart.size_text))
        axes.set_xlabel(x_label)
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
    about = {}
    if len(arguments) > 1 and arguments[0] == "--about":
        with open(arguments[1], encoding="utf-8") as file:
            file.seek(0)
            about = json.load(file)
        arguments = arguments[2:]
    if len(arguments) < 2 or not arguments[-1].endswith((".png", ".svg", ".html")):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if arguments[-1].endswith(".png"):
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            print("plot_bench.py: this python3 has no matplotlib", file=sys.stderr)
            return NO_MATPLOTLIB
    try:
        rows = read_rows(arguments[:-1])
    except OSError as error:
        print(f"plot_bench.py: {error}", file=sys.stderr)
        return 2
    points = points_of(rows)
    if not points:
        print("plot_bench.py: there are no results to draw", file=sys.stderr)
        return 2
    try:
        if arguments[-1].endswith(".html"):
            result_page.write(arguments[-1], title_of(points[0]), charts_of(points), rows, about)
        elif arguments[-1].endswith(".svg"):
            draw_svg(points, arguments[-1])
        else:
            draw_png(points, arguments[-1])
    except OSError as error:
        print(f"plot_bench.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
