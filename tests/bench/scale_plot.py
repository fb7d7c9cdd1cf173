"""Draws the figures of scale.py as one SVG, without a library: a panel a layout, microseconds over blocks, both axes
logarithmic. What grows with the number of blocks rises; what does not is a level line."""

import html
import math

PANEL_WIDTH, PANEL_HEIGHT = 430, 380
LEFT, TOP, GAP, LEGEND = 60, 50, 70, 320
COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#17becf")


class Axis:
    """A logarithmic scale from values to pixels."""

    def __init__(self, low, high, start, end):
        self.low, self.high = math.log10(low), math.log10(high)
        self.start, self.end = start, end

    def at(self, value):
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def decades(self):
        return [10 ** n for n in range(math.ceil(self.low), math.floor(self.high) + 1)]


def text(x, y, content, anchor="start", size=12, extra=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" {extra}>{html.escape(content)}</text>'


def short(value):
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def panel(x_axis, y_axis, title, lines):
    parts = [text((x_axis.start + x_axis.end) / 2, TOP - 18, title, "middle", 14)]
    for value in y_axis.decades():
        y = y_axis.at(value)
        parts.append(f'<line x1="{x_axis.start}" y1="{y:.1f}" x2="{x_axis.end}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(text(x_axis.start - 8, y + 4, short(value), "end"))
    for value in x_axis.decades():
        x = x_axis.at(value)
        parts.append(f'<line x1="{x:.1f}" y1="{y_axis.start}" x2="{x:.1f}" y2="{y_axis.end}" stroke="#dddddd"/>')
        parts.append(text(x, y_axis.start + 18, short(value), "middle"))
    parts.append(text((x_axis.start + x_axis.end) / 2, y_axis.start + 38, "blocks", "middle"))
    for colour, points in lines:
        at = [(x_axis.at(x), y_axis.at(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in at]
    return parts


def draw(results, titles, layouts):
    """`results`: layout -> size -> name -> value. Draws what is in microseconds."""
    names = [name for name, title in titles.items() if title.endswith(", us")]
    values = [figures[name] for by_size in results.values() for figures in by_size.values() for name in names]
    sizes = sorted({size for by_size in results.values() for size in by_size})
    low, high = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values)))
    width = LEFT + len(results) * (PANEL_WIDTH + GAP) + LEGEND
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + PANEL_HEIGHT + 60}" '
             'font-family="sans-serif">', '<rect width="100%" height="100%" fill="white"/>',
             text(8, TOP - 18, "us")]
    for number, layout in enumerate(results):
        left = LEFT + number * (PANEL_WIDTH + GAP)
        x_axis = Axis(sizes[0], max(sizes[-1], sizes[0] * 10), left, left + PANEL_WIDTH)
        y_axis = Axis(low, high, TOP + PANEL_HEIGHT, TOP)
        lines = [(colour, [(size, figures[name]) for size, figures in results[layout].items()])
                 for name, colour in zip(names, COLOURS)]
        parts += panel(x_axis, y_axis, layouts[layout], lines)
    for number, (name, colour) in enumerate(zip(names, COLOURS)):
        x, y = width - LEGEND - 40, TOP + 12 + 22 * number
        parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 20}" y2="{y - 4}" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(x + 26, y, titles[name].removesuffix(", us"), size=11))
    return "\n".join([*parts, "</svg>"]) + "\n"
