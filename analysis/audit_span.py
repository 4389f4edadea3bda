"""A number between the bounds that its printed digits leave open."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from analysis.levels import LevelRow

_MOST_DECIMALS = 6  # what has more was not rounded for print


@dataclass(frozen=True)
class Span:
    """``low`` to ``high`` is where the number was before it was rounded; equal where it was not."""

    value: float
    low: float
    high: float

    def __truediv__(self, other: Span) -> Span:
        """Of positive numbers."""
        return Span(self.value / other.value, self.low / other.high, self.high / other.low)

    def __mul__(self, other: Span) -> Span:
        """Of positive numbers."""
        return Span(self.value * other.value, self.low * other.low, self.high * other.high)

    def __add__(self, other: Span) -> Span:
        return Span(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Span) -> Span:
        return Span(self.value - other.value, self.low - other.high, self.high - other.low)

    def agrees(self, other: Span, tolerance: float = 0.0) -> bool:
        """Whether both can be one number, but for a share of the larger one."""
        return not (self.below(other, tolerance) or other.below(self, tolerance))

    def below(self, other: Span, tolerance: float = 0.0) -> bool:
        """Whether it is smaller by more than rounding and a share of ``other`` explain."""
        return self.high < other.low * (1.0 - tolerance) - 1e-12


def exact(value: float) -> Span:
    return Span(value, value, value)


def rounding(rows: Iterable[LevelRow]) -> dict[str, float]:
    """Half of the last printed digit of each figure, by its name: the finest digit that any of the rows has.

    Zeros at the end of a number cannot be seen, so at least two digits of the smallest one are taken for printed.
    Figures that were not rounded for print have 0. Rows of one file share their columns, so they share this.
    """
    digits: dict[str, int] = {}
    for row in rows:
        for name, figure in row.figures.items():
            if figure.value is not None and math.isfinite(figure.value):
                digits[name] = max(digits.get(name, 0), _decimals(figure.value), _two_digits(figure.value))
    return {name: 0.0 if count > _MOST_DECIMALS else 0.5 * 10.0**-count for name, count in digits.items()}


def _decimals(value: float) -> int:
    """Decimals of a number as printed; 7 for more than six."""
    return next((n for n in range(_MOST_DECIMALS + 1) if abs(round(value, n) - value) < 1e-10), _MOST_DECIMALS + 1)


def _two_digits(value: float) -> int:
    """Decimals of a number that is printed with two digits."""
    return min(_MOST_DECIMALS, 1 - math.floor(math.log10(abs(value)))) if value else 0
