"""Colours of a report in light and dark: plots are drawn in stand-ins, and the page says what each one is."""

from __future__ import annotations

from matplotlib import colormaps
from matplotlib.colors import to_hex

INK, MUTED, GRID, PAPER, BAND = "#010101", "#010102", "#010103", "#010104", "#010105"
_NAMED = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper", BAND: "band"}
LINES = 6  # colours of things of different kinds
STEPS = 8  # colours of things in an order
_LIGHT = {"ink": "#1c2430", "muted": "#5b6675", "grid": "#dfe4ea", "paper": "#ffffff", "band": "#f1f4f8"}
_DARK = {"ink": "#e4e9f0", "muted": "#9aa7b8", "grid": "#323c49", "paper": "#161c24", "band": "#1f2731"}
_LIGHT_LINES = ("#1f6feb", "#d9480f", "#0b8457", "#8b3fc7", "#b8860b", "#c2255c")
_DARK_LINES = ("#6cb2ff", "#ff9f5a", "#4fd1a1", "#c79bff", "#f2c94c", "#ff8ab5")


def line(number: int) -> str:
    """The stand-in of a kind, counted from 0; after ``LINES`` they come again."""
    return f"#0102{number % LINES:02x}"


def step(number: int, of: int) -> str:
    """The stand-in of the ``number``-th thing of an order, counted from 0."""
    place = round(number * (STEPS - 1) / max(1, of - 1))
    return f"#0103{place:02x}"


def variables(svg: str) -> str:
    """The drawing with every stand-in replaced by the variable that the page defines."""
    stand_ins = (
        _NAMED | {line(i): f"line-{i}" for i in range(LINES)} | {f"#0103{i:02x}": f"step-{i}" for i in range(STEPS)}
    )
    for colour, name in stand_ins.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg


def css(*, dark: bool) -> str:
    """Declarations of all variables."""
    named, lines = (_DARK, _DARK_LINES) if dark else (_LIGHT, _LIGHT_LINES)
    first, last = (0.35, 0.98) if dark else (0.86, 0.05)  # the dark end of the map is lost on a dark page
    shades = [to_hex(colormaps["viridis"](first + (last - first) * i / (STEPS - 1))) for i in range(STEPS)]
    colours = (
        named | {f"line-{i}": colour for i, colour in enumerate(lines)} | {f"step-{i}": c for i, c in enumerate(shades)}
    )
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
