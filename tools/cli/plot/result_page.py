"""The page of `tutti bench --html`: charts, tables, the machine and the settings in one file that loads nothing.

Knows rows and charts as values, nothing of how they were measured; needs no package.
"""

import html

import plot_topology
import svg_chart

PAGE_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1f2328; --faint: #d0d7de; --link: #0550ae }
@media (prefers-color-scheme: dark) { :root { --paper: #0d1117; --ink: #e6edf3; --faint: #3d444d; --link: #6cb6ff } }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--paper); color: var(--ink); font: 1rem/1.45 system-ui, sans-serif }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
code, pre { font-family: ui-monospace, monospace; font-size: .85rem; overflow-wrap: anywhere; white-space: pre-wrap }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)) }
figure { margin: 0 } figcaption { font-weight: 600 }
.charts svg { width: 100%; height: auto; font: 12px system-ui, sans-serif }
.wide { overflow-x: auto; max-width: 100% }
.wide:focus-visible { outline: 2px solid var(--link) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap }
th.text, td.text, tbody th { text-align: left }
tbody th { position: sticky; left: 0; background: var(--paper) }
dl { display: grid; grid-template-columns: minmax(6rem, auto) 1fr; gap: .2rem 1rem; margin: 0 }
dt { font-weight: 600 } dd { margin: 0; overflow-wrap: anywhere }
"""


def number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def wrong_text(row):
    return "not checked" if row.get("wrong") is None else str(row["wrong"])


def table(caption, heads, lines, name):
    """`heads`: (text, is it words); a line's first cell names it. Scrolls by itself where it is wider than the screen."""
    head = "".join(f'<th scope="col"{CLASS_TEXT if is_words else ""}>{html.escape(text)}</th>' for text, is_words in heads)
    body = []
    for line in lines:
        first, *others = (html.escape(cell) for cell in line)
        cells = "".join(f'<td{CLASS_TEXT if is_words else ""}>{cell}</td>' for cell, (_, is_words) in zip(others, heads[1:]))
        body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<p id="{name}">{html.escape(caption)}</p>\n<div class="wide" role="region" aria-labelledby="{name}" tabindex="0"><table aria-labelledby="{name}">\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n" + "\n".join(body) + "\n</tbody></table></div>\n"
    )


CLASS_TEXT = ' class="text"'


def side_by_side(rows):
    """A comparison as at the terminal: a line for each size, the time of each library, tutti's ratio to the best peer."""
    libraries = list(dict.fromkeys(row["library"] for row in rows))
    heads = [("size", True)] + [(f"{library}, us", False) for library in libraries]
    heads += [("busbw, GB/s", False), ("ratio", False), ("wrong", False), ("tutti's algorithm", True), ("best peer", True)]
    lines = []
    for size in sorted({row["bytes"] for row in rows}):
        of = {row["library"]: row for row in rows if row["bytes"] == size}
        own = of.get("tutti", {})
        times = [(number(of[name]["p50_us"]) if not of[name].get("wrong") else "wrong") if name in of else "" for name in libraries]
        best = own.get("best_peer", "")
        setting = of[best]["algorithm"] if best in of else ""
        lines.append(
            [svg_chart.size_text(size)]
            + times
            + [number(own.get("busbw_GBs"), 3), number(own.get("ratio")), wrong_text(own), own.get("algorithm", "")]
            + [f"{best} ({setting})" if setting else best]
        )
    return table(
        "Median time of a call, the libraries in turns; ratio: the best peer's time over tutti's, above 1 tutti is faster.",
        heads,
        lines,
        "results",
    )


def call_table(rows, name):
    """Calls of tutti alone."""
    has_bounds = any(row.get("bound_us") for row in rows)
    heads = [("size", True), ("count", False), ("dtype", True), ("op", True), ("algorithm", True), ("p50 us", False), ("p95 us", False)]
    heads += [("min us", False), ("algbw", False), ("busbw", False), ("wrong", False)]
    heads += [("bound us", False), ("reached", False), ("bound", True)] if has_bounds else []
    lines = []
    for row in rows:
        line = [
            "all gradients" if row.get("row") == "total" else svg_chart.size_text(row["bytes"]),
            str(row["count"]),
            row["dtype"],
            row["op"],
        ]
        line += [row["algorithm"], number(row["p50_us"]), number(row["p95_us"]), number(row["min_us"])]
        line += [number(row["algbw_GBs"], 3), number(row["busbw_GBs"], 3), wrong_text(row)]
        if has_bounds:
            line += [number(row.get("bound_us")), f'{row["roofline_percent"]:.0f} %' if row.get("bound_us") else "", row.get("bound", "")]
        lines.append(line)
    return table("Times of a call in us (the slowest rank's), bandwidths in GB/s.", heads, lines, name)


def ceiling_table(rows):
    names = list(dict.fromkeys(row["ceiling"] for row in rows))
    at = {(row["bytes"], row["ceiling"]): row["rate"] for row in rows}
    lines = [
        [svg_chart.size_text(size)] + [number(at.get((size, name))) for name in names] for size in sorted({row["bytes"] for row in rows})
    ]
    return table("Bandwidth of each rank in GB/s.", [("size", True)] + [(name, False) for name in names], lines, "results")


def result_table(rows):
    if "ceiling" in rows[0]:
        return ceiling_table(rows)
    compared = [row for row in rows if row.get("library")]
    others = [row for row in rows if not row.get("library")]
    return (side_by_side(compared) if compared else "") + (call_table(others, "calls" if compared else "results") if others else "")


def figure(chart, index):
    """A chart with a name and a description in words."""
    return (
        f'<figure><figcaption>{html.escape(chart.title)}</figcaption><svg viewBox="0 0 {svg_chart.WIDTH} {chart.height}" role="img" '
        f'aria-labelledby="chart{index} told{index}"><title id="chart{index}">{html.escape(chart.title)}</title>'
        f'<desc id="told{index}">{html.escape(chart.described())}; the table has the numbers.</desc>\n{chart.body()}\n</svg></figure>\n'
    )


def definitions(title, values):
    rows = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(str(value))}</dd>\n" for name, value in values)
    return f"<h2>{title}</h2>\n<dl>\n{rows}</dl>\n" if values else ""


def libraries_of(rows):
    """How each library called itself, and how its ranks reached each other."""
    found = {row.get("library") or "tutti": f'{row["backend"]}, transport {row["transport"]}' for row in rows if row.get("backend")}
    return list(found.items())


def machine_section(about):
    if not about.get("machine"):
        return ""
    picture = plot_topology.draw(about["machine"])
    return f'<h2>Machine</h2>\n<div class="wide" role="region" aria-label="drawing of the machine" tabindex="0">\n{picture}</div>\n'


def write(output, title, charts, rows, about):
    """The rows are those of the table. Of `about` (command, machine, settings, versions) what is not there is left out."""
    figures = "".join(figure(chart, i) for i, chart in enumerate(charts))
    command = f'<p><code>{html.escape(about["command"])}</code></p>\n' if about.get("command") else ""
    document = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}: tutti bench</title>\n<style>{PAGE_STYLE}{svg_chart.style()}\n</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{html.escape(title)}</h1>\n{command}<div class="charts">\n{figures}</div>\n<h2>Results</h2>\n{result_table(rows)}'
        + machine_section(about)
        + definitions("Settings", about.get("settings", []))
        + definitions("Versions", about.get("versions", []) + libraries_of(rows))
        + "</main>\n</body>\n</html>\n"
    )
    with open(output, "w", encoding="utf-8") as file:
        file.write(document)
