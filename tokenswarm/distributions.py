"""Distributions of lengths, counts and times: what a user writes where a quantity may vary.

Each shape is sampled by inverting its distribution function at one uniform random number, also between ``min`` and
``max``: every draw costs one number of the generator, none is thrown away, and no value piles up at a limit.
"""

from __future__ import annotations

import math
from random import Random
from statistics import NormalDist
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from tokenswarm.wanted import Number, did_you_mean, mistake, plain

_STANDARD = NormalDist()
_LARGEST = 1e9  # of any quantity; the place where a distribution stands narrows it
_SMALLEST_SHARE = 0.001  # of a curve that has to lie between its limits

Quantity = Annotated[float, Number(0, _LARGEST)]
Positive = Annotated[float, Number(0, _LARGEST, above=True)]


class Model(BaseModel):
    """Immutable, and every unknown key is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Shape(Model):
    """One distribution of a quantity that is never negative."""

    def sample(self, rng: Random) -> float:
        """One value, in the unit of the key where the distribution stands."""
        raise NotImplementedError

    def sample_int(self, rng: Random) -> int:
        """One whole value: rounded inside the limits, at least 1 unless the lower limit was written as 0."""
        low = 0 if self.zero_allowed else 1
        value = round(self.sample(rng))
        if value > self.highest:
            value = math.floor(self.highest)
        return max(low, value)

    @property
    def mean(self) -> float:
        """Mean of ``sample`` with the limits taken into account."""
        raise NotImplementedError

    @property
    def lowest(self) -> float:
        """No value lies below."""
        return 0.0

    @property
    def highest(self) -> float:
        """No value lies above; infinity where nothing limits it."""
        return math.inf

    @property
    def zero_allowed(self) -> bool:
        return False


class Fixed(Shape):
    """Always the same value; a bare number means this."""

    fixed: Quantity = Field(description="The value.")

    def sample(self, rng: Random) -> float:
        return self.fixed

    @property
    def mean(self) -> float:
        return self.fixed

    @property
    def lowest(self) -> float:
        return self.fixed

    @property
    def highest(self) -> float:
        return self.fixed

    @property
    def zero_allowed(self) -> bool:
        return self.fixed == 0


class Uniform(Shape):
    """Every value between two limits is as likely as the others; whole values include both limits."""

    uniform: tuple[Quantity, Quantity] = Field(description="Smallest and largest value.")

    @model_validator(mode="after")
    def _in_order(self) -> Uniform:
        if self.lowest > self.highest:
            raise mistake(f"the smallest value comes first: [{plain(self.highest)}, {plain(self.lowest)}]", "uniform")
        return self

    def sample(self, rng: Random) -> float:
        return self.lowest + (self.highest - self.lowest) * rng.random()

    def sample_int(self, rng: Random) -> int:
        low, high = math.ceil(self.lowest), math.floor(self.highest)
        return rng.randint(low, high) if low <= high else super().sample_int(rng)

    @property
    def mean(self) -> float:
        return (self.lowest + self.highest) / 2

    @property
    def lowest(self) -> float:
        return self.uniform[0]

    @property
    def highest(self) -> float:
        return self.uniform[1]

    @property
    def zero_allowed(self) -> bool:
        return self.uniform[0] == 0


class _Limits(Model):
    """``min`` and ``max`` cut a curve: values outside do not occur, those inside become likelier in proportion."""

    min: Quantity | None = Field(default=None, description="No value below; 0 when left out.")
    max: Quantity | None = Field(default=None, description="No value above; unlimited when left out.")

    @model_validator(mode="after")
    def _hold_enough(self) -> _Limits:
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

    def standard_score(self, rng: Random) -> float:
        """A standard normal value between the limits."""
        below, above = self.shares()
        share = below + (above - below) * rng.random()
        return _STANDARD.inv_cdf(min(max(share, 1e-300), 1 - 2**-53))


class NormalLimits(_Limits):
    mean: Quantity = Field(description="Middle of the curve, before min and max cut it.")
    std: Positive = Field(description="Standard deviation, before min and max cut it.")

    def standardised(self, value: float) -> float:
        return (value - self.mean) / self.std


class LognormalLimits(_Limits):
    median: Positive = Field(description="Half of the values lie below, before min and max cut the curve.")
    sigma: Annotated[float, Number(0, 4, above=True)] = Field(
        description="Standard deviation of the natural logarithm; 1 spreads the middle two thirds over a factor of 7."
    )

    def standardised(self, value: float) -> float:
        return (math.log(value / self.median) if value > 0 else -math.inf) / self.sigma


class _Cut(Shape):
    """A curve inside limits."""

    @property
    def _limits(self) -> _Limits:
        raise NotImplementedError

    @property
    def lowest(self) -> float:
        return self._limits.low

    @property
    def highest(self) -> float:
        return self._limits.high

    @property
    def zero_allowed(self) -> bool:
        return self._limits.min == 0

    def _clamped(self, value: float) -> float:
        return min(max(value, self.lowest), self.highest)  # rounding may step over a limit by one bit


class Normal(_Cut):
    """A bell curve, cut at ``min`` (0 when left out) and ``max``."""

    normal: NormalLimits = Field(description="mean, std, and optional min and max.")

    @property
    def _limits(self) -> _Limits:
        return self.normal

    def sample(self, rng: Random) -> float:
        return self._clamped(self.normal.mean + self.normal.std * self.normal.standard_score(rng))

    @property
    def mean(self) -> float:
        curve = self.normal
        below, above = curve.shares()
        density = [_STANDARD.pdf(curve.standardised(end)) for end in (curve.low, curve.high)]
        return curve.mean + curve.std * (density[0] - density[1]) / (above - below)


class Lognormal(_Cut):
    """Many small values and a long tail of large ones, cut at ``min`` and ``max``."""

    lognormal: LognormalLimits = Field(description="median, sigma, and optional min and max.")

    @property
    def _limits(self) -> _Limits:
        return self.lognormal

    def sample(self, rng: Random) -> float:
        curve = self.lognormal
        return self._clamped(curve.median * math.exp(curve.sigma * curve.standard_score(rng)))

    @property
    def mean(self) -> float:
        curve = self.lognormal
        below, above = curve.shares()
        shifted = [_STANDARD.cdf(curve.standardised(end) - curve.sigma) for end in (curve.low, curve.high)]
        whole = curve.median * math.exp(curve.sigma**2 / 2)
        return whole * (shifted[1] - shifted[0]) / (above - below)


class Exponential(Shape):
    """Times between independent events; mostly short, sometimes several times the mean."""

    exponential: Positive = Field(description="The mean.")

    def sample(self, rng: Random) -> float:
        return -self.exponential * math.log1p(-rng.random())

    @property
    def mean(self) -> float:
        return self.exponential


class GeometricLimits(Model):
    mean: Annotated[float, Number(1, _LARGEST)] = Field(description="Mean number, before max cuts it; at least 1.")
    max: Annotated[float, Number(1, _LARGEST)] | None = Field(
        default=None, description="No value above; unlimited when left out."
    )


class Geometric(Shape):
    """Whole numbers from 1: after each one there is the same chance that it was the last."""

    geometric: GeometricLimits = Field(description="mean and optional max.")

    @property
    def _go_on(self) -> float:
        return 1 - 1 / self.geometric.mean

    @property
    def _share_below_max(self) -> float:
        """Share of the uncut numbers that are at most ``max``."""
        return 1.0 if math.isinf(self.highest) else 1 - self._go_on ** math.floor(self.highest)

    def sample(self, rng: Random) -> float:
        share = self._share_below_max * rng.random()
        if self._go_on == 0:
            return 1.0
        return float(min(1 + math.floor(math.log1p(-share) / math.log(self._go_on)), self.highest))

    @property
    def mean(self) -> float:
        if math.isinf(self.highest):
            return self.geometric.mean
        largest = math.floor(self.highest)
        left_over = self._go_on**largest
        return self.geometric.mean - largest * left_over / (1 - left_over)

    @property
    def lowest(self) -> float:
        return 1.0

    @property
    def highest(self) -> float:
        return math.inf if self.geometric.max is None else self.geometric.max


SHAPES: dict[str, type[Shape]] = {
    "fixed": Fixed,
    "uniform": Uniform,
    "normal": Normal,
    "lognormal": Lognormal,
    "exponential": Exponential,
    "geometric": Geometric,
}


def _as_mapping(value: Any) -> Any:
    """A bare number becomes ``{fixed: number}``; anything but one known shape is refused here, in one line."""
    if isinstance(value, Shape):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"fixed": value}
    if not isinstance(value, dict) or len(value) != 1:
        raise mistake(f"a number or one distribution is wanted: {', '.join(SHAPES)}, as in {{uniform: [1, 6]}}")
    name = str(next(iter(value)))
    if name not in SHAPES:
        hint = did_you_mean(name, SHAPES)
        raise mistake(f"unknown distribution; one of {', '.join(SHAPES)} is wanted{hint}", name)
    return value


def _tag(value: Any) -> str:
    name = next(iter(value)) if isinstance(value, dict) else type(value).__name__.lower()
    return f"<{name}>"


AnyShape = Fixed | Uniform | Normal | Lognormal | Exponential | Geometric

Distribution = Annotated[
    Annotated[Fixed, Tag("<fixed>")]
    | Annotated[Uniform, Tag("<uniform>")]
    | Annotated[Normal, Tag("<normal>")]
    | Annotated[Lognormal, Tag("<lognormal>")]
    | Annotated[Exponential, Tag("<exponential>")]
    | Annotated[Geometric, Tag("<geometric>")],
    Discriminator(_tag),
    BeforeValidator(_as_mapping, json_schema_input_type=Quantity | AnyShape),
]


def within(low: float, high: float, *, whole: bool = False) -> AfterValidator:
    """Limits that the place of a distribution sets, whatever its shape."""
    kind = "whole numbers" if whole else "numbers"

    def check(shape: Shape) -> Shape:
        stated = shape.lowest > 0 or shape.zero_allowed
        ends = [shape.lowest, shape.mean if math.isinf(shape.highest) else shape.highest]
        too_low = stated and shape.lowest < low
        broken = whole and isinstance(shape, Fixed | Uniform) and any(end != int(end) for end in ends)
        if too_low or broken or ends[1] > high:
            raise mistake(f"{kind} from {plain(low)} to {plain(high)} are wanted")
        return shape

    return AfterValidator(check)
