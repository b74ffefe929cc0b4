"""Line charts over size as SVG text, readable on light and dark paper.

Knows curves and axes, nothing of benchmarks; needs no package.
"""

import math
from xml.sax.saxutils import escape

WIDTH, PLOT_HEIGHT = 460, 270
LEFT, RIGHT, TOP, BOTTOM = 58, 24, 12, 44
LEGEND_LINE, LEGEND_COLUMNS = 18, 2
# One colour, dash and marker for each curve, so that colour alone never tells two apart.
LIGHT = ["#0550ae", "#a04100", "#116329", "#8250df", "#a0266f", "#0a6b78", "#7d4e00", "#57606a"]
DARK = ["#6cb6ff", "#f0883e", "#57ab5a", "#c297ff", "#f778ba", "#56d4dd", "#e3b341", "#adbac7"]
DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2", "7 2 1 2"]
PAPERS = {
    "light": {"paper": "#ffffff", "ink": "#1f2328", "faint": "#d0d7de", "curves": LIGHT},
    "dark": {"paper": "#0d1117", "ink": "#e6edf3", "faint": "#3d444d", "curves": DARK},
}


def rules(paper):
    colours = PAPERS[paper]
    lines = [
        f'.paper{{fill:{colours["paper"]}}} .ink{{fill:{colours["ink"]}}} .line{{stroke:{colours["ink"]}}} .grid{{stroke:{colours["faint"]}}}'
    ]
    for i, colour in enumerate(colours["curves"]):
        lines.append(f".curve{i}{{stroke:{colour}}} .dot{i}{{fill:{colour}}}")
    return "\n".join(lines)


def style():
    """The colours of both papers; plain rules, because several viewers of SVG know no variables."""
    return f'{rules("light")}\n@media (prefers-color-scheme: dark) {{\n{rules("dark")}\n}}'


def number_text(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.6g}"


def size_text(value, _position=None):
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:g} {unit}"
        value /= 1024
    return f"{value:g} GiB"


class Axis:
    """Values to positions between `low` and `high`, with ticks."""

    def __init__(self, values, base, at_low, at_high):
        self.base, self.at_low, self.at_high = base, at_low, at_high
        low, high = min(values), max(values)
        if base:
            self.low, self.high = math.log(low, base), math.log(high, base)
            pad = 0.06 * (self.high - self.low) or 0.5
            self.low, self.high = self.low - pad, self.high + pad
        else:
            self.low, self.high = 0.0, 1.06 * high or 1.0

    def __call__(self, value):
        value = math.log(value, self.base) if self.base else value
        return self.at_low + (value - self.low) / (self.high - self.low) * (self.at_high - self.at_low)

    def ticks(self, most=6):
        """At most so many round values."""
        if not self.base:
            step = 10 ** math.floor(math.log10(self.high / 2))
            step = next(step * factor for factor in (0.5, 1, 2, 5, 10, 20) if self.high / (step * factor) <= most)
            return [i * step for i in range(int(self.high / step) + 1)]
        first, last = math.ceil(self.low - 1e-9), math.floor(self.high + 1e-9)
        step = max(1, -(-(last - first + 1) // most))
        powers = [float(self.base) ** exponent for exponent in range(first, last + 1, step)]
        if self.base == 10 and len(powers) < 3:
            powers = [mantissa * 10.0**exponent for exponent in range(first - 1, last + 1) for mantissa in (1, 2, 5)]
        return [power for power in powers if self.low - 1e-9 <= math.log(power, self.base) <= self.high + 1e-9]


def marker(index, x, y, tip):
    """Circle, square, triangle or diamond, with its values as a tooltip."""
    shapes = (
        ("circle", f'cx="{x:.1f}" cy="{y:.1f}" r="3"'),
        ("rect", f'x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"'),
        ("path", f'd="M{x:.1f} {y - 4:.1f}l4 7h-8z"'),
        ("path", f'd="M{x:.1f} {y - 4:.1f}l4 4l-4 4l-4 -4z"'),
    )
    element, attributes = shapes[index % len(shapes)]
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<{element} {attributes} class="dot{index % len(LIGHT)}">{title}</{element}>'


def stroke(index, points, is_bound):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = "6 4" if is_bound else DASHES[index % len(DASHES)]
    name = "line" if is_bound else f"curve{index % len(LIGHT)}"
    return f'<polyline points="{path}" fill="none" class="{name}" stroke-width="{1.4 if is_bound else 2}" stroke-dasharray="{dash or "none"}"/>'


def legend(labels, top):
    parts = []
    for i, label in enumerate(labels):
        x = LEFT + i % LEGEND_COLUMNS * ((WIDTH - LEFT) / LEGEND_COLUMNS)
        y = top + i // LEGEND_COLUMNS * LEGEND_LINE
        parts.append(stroke(i, [(x, y - 4), (x + 26, y - 4)], label == "bound"))
        if label != "bound":
            parts.append(marker(i, x + 13, y - 4, ""))
        parts.append(f'<text x="{x + 32:.0f}" y="{y}" class="ink">{escape(label)}</text>')
    return parts


class Chart:
    """Curves over size: `curves` maps a label to points (size, value). A picture of WIDTH by `height`."""

    def __init__(self, title, curves, x_label, unit, is_log):
        self.title, self.curves, self.x_label, self.unit = title, curves, x_label, unit
        self.height = PLOT_HEIGHT + -(-len(curves) // LEGEND_COLUMNS) * LEGEND_LINE
        self.x_axis = Axis([max(size, 1) for points in curves.values() for size, _ in points], 2, LEFT, WIDTH - RIGHT)
        values = [value for points in curves.values() for _, value in points]
        self.y_axis = Axis(values, 10 if is_log else None, PLOT_HEIGHT - BOTTOM, TOP)

    def described(self):
        sizes = sorted(size for points in self.curves.values() for size, _ in points)
        curves = f"{len(self.curves)} curves" if len(self.curves) > 1 else "a curve"
        return f'{self.title}: {curves} ({", ".join(self.curves)}) over sizes from {size_text(sizes[0])} to {size_text(sizes[-1])}'

    def grid(self):
        parts = []
        for tick in self.y_axis.ticks():
            y = self.y_axis(tick)
            parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="ink" text-anchor="end">{number_text(tick)}</text>')
        for tick in self.x_axis.ticks(5):
            x = self.x_axis(tick)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{PLOT_HEIGHT - BOTTOM}" class="grid"/>')
            parts.append(f'<text x="{x:.1f}" y="{PLOT_HEIGHT - BOTTOM + 16}" class="ink" text-anchor="middle">{size_text(tick)}</text>')
        return parts

    def body(self):
        """The inside of the SVG element; its colours come from style()."""
        parts = self.grid()
        middle_x, middle_y = (LEFT + WIDTH - RIGHT) / 2, (TOP + PLOT_HEIGHT - BOTTOM) / 2
        parts.append(f'<text x="{middle_x:.0f}" y="{PLOT_HEIGHT - 8}" class="ink" text-anchor="middle">{escape(self.x_label)}</text>')
        parts.append(
            f'<text transform="translate(13 {middle_y:.0f}) rotate(-90)" class="ink" text-anchor="middle">{escape(self.title)}</text>'
        )
        for i, (label, points) in enumerate(self.curves.items()):
            at = [(self.x_axis(max(size, 1)), self.y_axis(value)) for size, value in points]
            parts.append(stroke(i, at, label == "bound"))
            for (x, y), (size, value) in zip(at, points):
                if label != "bound":
                    parts.append(marker(i, x, y, f"{label}, {size_text(size)}: {number_text(value)} {self.unit}"))
        return "\n".join(parts + legend(list(self.curves), PLOT_HEIGHT + 10))
