"""Horizontal bars as an SVG picture."""

from __future__ import annotations

import pathlib
from typing import List, NamedTuple, Optional
from xml.sax.saxutils import escape

LABEL_WIDTH, BAR_WIDTH, VALUE_WIDTH, ROW_HEIGHT, TOP = 470, 420, 90, 20, 44
GOOD, OTHER, LINE = "#2a7f62", "#b0563b", "#444444"


class Bar(NamedTuple):
    label: str
    length: float
    text: str  # written at the end of the bar
    good: bool  # its colour


def write(path: pathlib.Path, title: str, bars: List[Bar], mark: Optional[float]) -> None:
    """mark: where to draw a vertical line, in the unit of the lengths."""
    longest = max([bar.length for bar in bars] + [mark or 0]) or 1
    height = TOP + ROW_HEIGHT * len(bars) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="24" font-size="15">{escape(title)}</text>',
    ]
    for place, bar in enumerate(bars):
        top = TOP + place * ROW_HEIGHT
        width = bar.length / longest * BAR_WIDTH
        parts.append(f'<text x="{LABEL_WIDTH - 8}" y="{top + 13}" text-anchor="end">{escape(bar.label)}</text>')
        parts.append(
            f'<rect x="{LABEL_WIDTH}" y="{top + 2}" width="{width:.1f}" height="{ROW_HEIGHT - 5}" '
            f'fill="{GOOD if bar.good else OTHER}"/>'
        )
        parts.append(f'<text x="{LABEL_WIDTH + width + 5:.1f}" y="{top + 13}">{escape(bar.text)}</text>')
    if mark is not None:
        x = LABEL_WIDTH + mark / longest * BAR_WIDTH
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 8}" stroke="{LINE}"/>')
    parts.append("</svg>")
    path.write_text("\n".join(parts) + "\n", encoding="utf-8")
