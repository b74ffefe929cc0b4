#!/usr/bin/env python3
"""Draws a machine with the ranks placed on it as SVG, from the boxes of `tutti info --topology`.

Knows the fields of the boxes, nothing of how ranks were placed; needs no package.
Usage: plot_topology.py BOXES.json OUTPUT.svg
Exit status: 0 drawn, 2 wrong arguments or input.
"""
import json
import sys
from xml.sax.saxutils import escape

CORE, GAP, LINE = 34, 6, 16
CORES_IN_ROW = 16
# Colours that stay apart for most eyes; ranks take them in turn.
COLOURS = ["#8dd3c7", "#ffed6f", "#bebada", "#fb8072", "#80b1d3", "#fdb462", "#b3de69", "#fccde5", "#bc80bd", "#ccebc5"]


def colour_of(ranks):
    if ranks == "~":
        return "#bbbbbb"
    digits = ranks.replace("-", ",").replace("|", ",").split(",")[0]
    return COLOURS[int(digits) % len(COLOURS)] if digits.isdigit() else "#ffffff"


class Drawing:
    def __init__(self):
        self.parts = []

    def box(self, x, y, width, height, fill="none", title=""):
        tip = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="3" fill="{fill}" stroke="#444444">{tip}</rect>')

    def text(self, x, y, text, size=11, anchor="start"):
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>')

    def cores(self, x, y, cores):
        """Rows of cores; returns width and height."""
        for i, core in enumerate(cores):
            left, top = x + i % CORES_IN_ROW * (CORE + 2), y + i // CORES_IN_ROW * (CORE + 2)
            self.box(left, top, CORE, CORE, colour_of(core["ranks"]), f"CPUs {core['cpus']}")
            shown = core["ranks"] if len(core["ranks"]) <= 7 else core["ranks"][:6] + "…"
            self.text(left + CORE / 2, top + CORE / 2 + 4, shown if shown not in ".~" else "", 13 if len(shown) < 4 else 8, "middle")
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
        self.box(x, y, width, LINE + GAP, colour_of(device["ranks"]) if device["ranks"] else "#f2f2f2", f"{device['pci']} {device['model']}")
        self.text(x + GAP, y + LINE, text)
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
    return (f'<?xml version="1.0" encoding="utf-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" '
            f'font-family="sans-serif">\n<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(drawing.parts) + "\n</svg>\n")


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
            file.write(picture)
    except (OSError, ValueError, KeyError) as error:
        print(f"plot_topology.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
