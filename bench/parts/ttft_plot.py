"""The picture of ``bench/ttft.py``: time to the first token over the length of the prompt, one panel a hit fraction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from bench.parts.ttft_figures import Figures

_COLOURS = ("#6b7280", "#2563eb", "#059669", "#dc2626", "#d97706")
_TITLE = "Seconds to the first token over tokens of the prompt"
_TITLES = {0.0: "nothing known", 0.5: "half known", 1.0: "all known"}
_PANEL_WIDTH, _PANEL_HEIGHT = 250, 230
_LEFT, _TOP, _GAP, _BELOW = 60, 40, 30, 90
_DECADES = (0.1, 1.0, 10.0)
_STYLE = (
    "text{font:12px sans-serif;fill:#374151}.t{font-weight:bold}.g{stroke:#9ca3af;stroke-opacity:.4}"
    "@media(prefers-color-scheme:dark){text{fill:#d1d5db}}"
)


def draw(figures: Figures, lengths: Sequence[int]) -> str:
    """Give the SVG."""
    width = _LEFT + len(_TITLES) * (_PANEL_WIDTH + _GAP)
    height = _TOP + _PANEL_HEIGHT + _BELOW
    middle = _TOP + _PANEL_HEIGHT / 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{_TITLE}">',
        f"<style>{_STYLE}</style>",
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">seconds to the first token</text>',
    ]
    seconds = [answer.first_token_s for answer in figures.answers]
    low, high = math.log10(min(seconds)) - 0.1, math.log10(max(seconds)) + 0.1
    for place, fraction in enumerate(_TITLES):
        x = _LEFT + place * (_PANEL_WIDTH + _GAP)
        lines += _Panel(figures, lengths, fraction, x=x, scale=(low, high)).lines()
    for place, side in enumerate(figures.sides):
        x, y = _LEFT + place % 3 * (_PANEL_WIDTH + _GAP), _TOP + _PANEL_HEIGHT + 50 + place // 3 * 20
        lines.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{_COLOURS[place]}"/>')
        lines.append(f'<text x="{x + 18}" y="{y}">{escape(side)}</text>')
    return "\n".join([*lines, "</svg>", ""])


class _Panel:
    """One hit fraction; seconds on a logarithmic scale."""

    def __init__(
        self, figures: Figures, lengths: Sequence[int], fraction: float, *, x: float, scale: tuple[float, float]
    ) -> None:
        self._figures = figures
        self._lengths = lengths
        self._fraction = fraction
        self._x = x
        self._low, self._high = scale

    def lines(self) -> Iterator[str]:
        """Give the panel's elements."""
        bottom = _TOP + _PANEL_HEIGHT
        yield f'<text class="t" x="{self._x}" y="{_TOP - 14}">{_TITLES[self._fraction]}</text>'
        for seconds in _DECADES:
            if self._low <= math.log10(seconds) <= self._high:
                y = self._y(seconds)
                yield f'<line class="g" x1="{self._x}" x2="{self._x + _PANEL_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
                yield f'<text x="{self._x - 6}" y="{y + 4:.1f}" text-anchor="end">{seconds:g}</text>'
        for length in self._lengths:
            yield f'<text x="{self._at(length):.1f}" y="{bottom + 16}" text-anchor="middle">{length}</text>'
        yield f'<line class="g" x1="{self._x}" x2="{self._x + _PANEL_WIDTH}" y1="{bottom}" y2="{bottom}"/>'
        for place, side in enumerate(self._figures.sides):
            yield from self._curve(side, _COLOURS[place])

    def _curve(self, side: str, colour: str) -> Iterator[str]:
        points = []
        for length in self._lengths:
            seconds = self._figures.median_s(side, length, self._fraction)
            if seconds is not None:
                points.append((self._at(length), self._y(seconds)))
        if points:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'

    def _at(self, length: int) -> float:
        return self._x + 20 + (_PANEL_WIDTH - 40) * length / max(self._lengths)

    def _y(self, seconds: float) -> float:
        return _TOP + _PANEL_HEIGHT * (self._high - math.log10(seconds)) / (self._high - self._low)
