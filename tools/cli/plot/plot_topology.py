#!/usr/bin/env python3
"""Draws a machine with the ranks placed on it as SVG, from the boxes of `tutti info --topology`.

Knows the fields of the boxes, nothing of how ranks were placed; needs no package.
Usage: plot_topology.py BOXES.json OUTPUT.svg
Exit status: 0 drawn, 2 wrong arguments or input.
"""

import json
import sys
from xml.sax.saxutils import escape

import svg_chart

CORE, GAP, LINE = 34, 6, 16
CORES_IN_ROW = 16
ON_COLOUR = "#1f2328"
# Colours that stay apart for most eyes; ranks take them in turn.
COLOURS = ["#8dd3c7", "#ffed6f", "#bebada", "#fb8072", "#80b1d3", "#fdb462", "#b3de69", "#fccde5", "#bc80bd", "#ccebc5"]


def colour_of(ranks):
    if ranks == "~":
        return "#8b949e"
    digits = ranks.replace("-", ",").replace("|", ",").split(",")[0]
    return COLOURS[int(digits) % len(COLOURS)] if digits.isdigit() else "none"


class Drawing:
    def __init__(self):
        self.parts = []

    def box(self, x, y, width, height, fill="none", title=""):
        tip = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{fill}" class="line">{tip}</rect>')

    def text(self, x, y, text, size=11, anchor="start", colour=""):
        """In the colour of ink unless it stands on a coloured box."""
        fill = f'fill="{colour}"' if colour else 'class="ink"'
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" {fill}>{escape(text)}</text>')

    def cores(self, x, y, cores):
        """Rows of cores; returns width and height."""
        for i, core in enumerate(cores):
            left, top = x + i % CORES_IN_ROW * (CORE + 2), y + i // CORES_IN_ROW * (CORE + 2)
            self.box(left, top, CORE, CORE, colour_of(core["ranks"]), f"CPUs {core['cpus']}")
            shown = core["ranks"] if len(core["ranks"]) <= 7 else core["ranks"][:6] + "…"
            self.text(
                left + CORE / 2, top + CORE / 2 + 4, shown if shown not in ".~" else "", 13 if len(shown) < 4 else 8, "middle", ON_COLOUR
            )
        rows = (len(cores) + CORES_IN_ROW - 1) // CORES_IN_ROW
        return min(len(cores), CORES_IN_ROW) * (CORE + 2) - 2, rows * (CORE + 2) - 2

    def titled(self, x, y, title, draw_inside):
        """A box with a title around what draw_inside(x, y) draws; returns width and height."""
        width, height = draw_inside(x + GAP, y + GAP + LINE)
        width = max(width, 7 * len(title)) + 2 * GAP
        height += LINE + 2 * GAP
        self.text(x + GAP, y + LINE, title)
        self.box(x, y, width, height)
        return width, height

    def stacked(self, x, y, drawers):
        width = height = 0
        for drawer in drawers:
            inner_width, inner_height = drawer(x, y + height)
            width, height = max(width, inner_width), height + inner_height + GAP
        return width, max(0, height - GAP)

    def device(self, x, y, device):
        name = ", ".join(device["names"]) or device["pci"]
        ranks = f" ← {device['ranks']}" if device["ranks"] else ""
        text = f"{device['kind']} {name}{ranks}"
        width = 7 * len(text) + 2 * GAP
        self.box(x, y, width, LINE + GAP, colour_of(device["ranks"]) if device["ranks"] else "none", f"{device['pci']} {device['model']}")
        self.text(x + GAP, y + LINE, text, colour=ON_COLOUR if device["ranks"] else "")
        return width, LINE + GAP

    def cache(self, x, y, cache):
        return self.titled(x, y, cache["name"], lambda a, b: self.cores(a, b, cache["cores"]))

    def group(self, x, y, group):
        inside = [lambda a, b, c=cache: self.cache(a, b, c) for cache in group["caches"]]
        return self.titled(x, y, group["name"], lambda a, b: self.stacked(a, b, inside))

    def socket(self, x, y, socket):
        inside = [lambda a, b, g=group: self.group(a, b, g) for group in socket["groups"]]
        inside += [lambda a, b, d=device: self.device(a, b, d) for device in socket["devices"]]
        return self.titled(x, y, socket["name"], lambda a, b: self.stacked(a, b, inside))


def draw(boxes):
    """An SVG element that takes its colours from the rules of svg_chart.style()."""
    drawing = Drawing()
    title = f"{boxes['title']}: {boxes['rank_count']} ranks, {boxes['policy']}"
    drawing.text(GAP, LINE + 2, title, 14)
    x, top, height = GAP, 2 * LINE, 0
    for socket in boxes["sockets"]:
        width, inner = drawing.socket(x, top, socket)
        x, height = x + width + GAP, max(height, inner)
    y = top + height + GAP
    for device in boxes["devices"]:
        y += drawing.device(GAP, y, device)[1] + GAP
    width = max(x, 9 * len(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" role="img" font-family="sans-serif">\n'
        f"<title>{escape(title)}</title>\n<desc>{escape(describe(boxes))}</desc>\n" + "\n".join(drawing.parts) + "\n</svg>\n"
    )


def describe(boxes):
    """The drawing in words, for readers that don't see it."""
    places = []
    for socket in boxes["sockets"]:
        for group in socket["groups"]:
            cores = [core for cache in group["caches"] for core in cache["cores"]]
            sat = [f"ranks {core['ranks']} on CPUs {core['cpus']}" for core in cores if core["ranks"] not in (".", "~")]
            caches = ", ".join(cache["name"] for cache in group["caches"])
            places.append(f"{socket['name']}: {group['name']}, {len(cores)} cores, {caches}" + "".join(f"; {one}" for one in sat))
    return ". ".join(places) + "."


def main(arguments):
    if len(arguments) != 2 or not arguments[1].endswith(".svg"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        with open(arguments[0], encoding="utf-8") as file:
            file.seek(0)
            boxes = json.load(file)
        picture = draw(boxes)
        with open(arguments[1], "w", encoding="utf-8") as file:
            paper = f'<style>\n{svg_chart.style()}\n</style>\n<rect width="100%" height="100%" class="paper"/>\n'
            file.write('<?xml version="1.0" encoding="utf-8"?>\n' + picture.replace("</desc>\n", "</desc>\n" + paper, 1))
    except (OSError, ValueError, KeyError) as error:
        print(f"plot_topology.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
