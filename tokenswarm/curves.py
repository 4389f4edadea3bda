"""The normal and lognormal curves behind two of the distributions, cut at ``min`` and ``max``."""

from __future__ import annotations

import math
from random import Random
from statistics import NormalDist
from typing import Annotated

from pydantic import Field, model_validator

from tokenswarm.wanted import Model, Number, mistake, plain

LARGEST = 1e9  # of any quantity; the place where a distribution stands narrows it
_STANDARD = NormalDist()
_SMALLEST_SHARE = 0.001  # of a curve that has to lie between its limits

Quantity = Annotated[float, Number(0, LARGEST)]
Positive = Annotated[float, Number(0, LARGEST, above=True)]


class CurveLimits(Model):
    """``min`` and ``max`` cut a curve: values outside do not occur, those inside become likelier in proportion."""

    min: Quantity | None = Field(default=None, description="No value below; 0 when left out.")
    max: Quantity | None = Field(default=None, description="No value above; unlimited when left out.")

    @model_validator(mode="after")
    def _hold_enough(self) -> CurveLimits:
        if self.max is not None and self.max <= self.low:
            raise mistake(f"a number above min ({plain(self.low)}) is wanted", "max")
        below, above = self.shares()
        if above - below < _SMALLEST_SHARE:
            raise mistake("min and max leave less than 0.1 % of the curve; move them, or use uniform")
        return self

    @property
    def low(self) -> float:
        return self.min or 0.0

    @property
    def high(self) -> float:
        return math.inf if self.max is None else self.max

    def standardised(self, value: float) -> float:
        """``value`` as a number of standard deviations from the middle of the (log) normal curve."""
        raise NotImplementedError

    def shares(self) -> tuple[float, float]:
        """Share of the uncut curve below ``min`` and below ``max``."""
        return _STANDARD.cdf(self.standardised(self.low)), _STANDARD.cdf(self.standardised(self.high))

    def draw(self, rng: Random) -> float:
        """One value between the limits."""
        below, above = self.shares()
        share = below + (above - below) * rng.random()
        value = self.at(_STANDARD.inv_cdf(min(max(share, 1e-300), 1 - 2**-53)))
        return min(max(value, self.low), self.high)  # rounding may step over a limit by one bit

    def at(self, score: float) -> float:
        """The value that lies ``score`` standard deviations from the middle: undoes ``standardised``."""
        raise NotImplementedError


class NormalLimits(CurveLimits):
    """A bell curve."""

    mean: Quantity = Field(description="Middle of the curve, before min and max cut it.")
    std: Positive = Field(description="Standard deviation, before min and max cut it.")

    def standardised(self, value: float) -> float:
        return (value - self.mean) / self.std

    def at(self, score: float) -> float:
        return self.mean + self.std * score

    @property
    def mean_inside(self) -> float:
        """Mean of the values between the limits."""
        below, above = self.shares()
        density = [_STANDARD.pdf(self.standardised(end)) for end in (self.low, self.high)]
        return self.mean + self.std * (density[0] - density[1]) / (above - below)


class LognormalLimits(CurveLimits):
    """A curve whose logarithm is a bell curve."""

    median: Positive = Field(description="Half of the values lie below, before min and max cut the curve.")
    sigma: Annotated[float, Number(0, 4, above=True)] = Field(
        description="Standard deviation of the natural logarithm; 1 spreads the middle two thirds over a factor of 7."
    )

    def standardised(self, value: float) -> float:
        return (math.log(value / self.median) if value > 0 else -math.inf) / self.sigma

    def at(self, score: float) -> float:
        return self.median * math.exp(self.sigma * score)

    @property
    def mean_inside(self) -> float:
        """Mean of the values between the limits."""
        below, above = self.shares()
        shifted = [_STANDARD.cdf(self.standardised(end) - self.sigma) for end in (self.low, self.high)]
        uncut = self.median * math.exp(self.sigma**2 / 2)
        return uncut * (shifted[1] - shifted[0]) / (above - below)
