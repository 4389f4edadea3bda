"""Distributions of lengths, counts and times: what a user writes where a quantity may vary.

Each shape is sampled by inverting its distribution function at one uniform random number, also between ``min`` and
``max``: every draw costs one number of the generator, none is thrown away, and no value piles up at a limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, GetCoreSchemaHandler, Tag, model_validator
from pydantic_core import core_schema

from tokenswarm.curves import LARGEST, CurveLimits, LognormalLimits, NormalLimits, Positive, Quantity
from tokenswarm.wanted import Model, Number, did_you_mean, mistake, plain, without_unit


class Shape(Model):
    """One distribution of a quantity that is never negative."""

    def sample(self, rng: Random) -> float:
        """One value, in the unit of the key where the distribution stands."""
        raise NotImplementedError

    def sample_int(self, rng: Random) -> int:
        """One whole value: rounded inside the limits, at least 1 unless the lower limit was written as 0."""
        low = 0 if self.zero_allowed else max(1, math.ceil(self.lowest))
        value = round(self.sample(rng))
        return max(low, value if value <= self.highest else math.floor(self.highest))

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


class _Cut(Shape):
    """A curve inside limits."""

    @property
    def _limits(self) -> CurveLimits:
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


class Normal(_Cut):
    """A bell curve, cut at ``min`` (0 when left out) and ``max``."""

    normal: NormalLimits = Field(description="mean, std, and optional min and max.")

    @property
    def _limits(self) -> CurveLimits:
        return self.normal

    def sample(self, rng: Random) -> float:
        return self.normal.draw(rng)

    @property
    def mean(self) -> float:
        return self.normal.mean_inside


class Lognormal(_Cut):
    """Many small values and a long tail of large ones, cut at ``min`` and ``max``."""

    lognormal: LognormalLimits = Field(description="median, sigma, and optional min and max.")

    @property
    def _limits(self) -> CurveLimits:
        return self.lognormal

    def sample(self, rng: Random) -> float:
        return self.lognormal.draw(rng)

    @property
    def mean(self) -> float:
        return self.lognormal.mean_inside


class Exponential(Shape):
    """Times between independent events; mostly short, sometimes several times the mean."""

    exponential: Positive = Field(description="The mean.")

    def sample(self, rng: Random) -> float:
        return -self.exponential * math.log1p(-rng.random())

    @property
    def mean(self) -> float:
        return self.exponential


class GeometricLimits(Model):
    mean: Annotated[float, Number(1, LARGEST)] = Field(description="Mean number, before max cuts it; at least 1.")
    max: Annotated[float, Number(1, LARGEST)] | None = Field(
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


_FORMS = f"or one distribution ({', '.join(SHAPES)})"


def _as_mapping(value: Any) -> Any:
    """A bare number becomes ``{fixed: number}``; anything but one known shape is refused here, in one line."""
    if isinstance(value, Shape):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"fixed": value}
    if not isinstance(value, dict) or len(value) != 1:
        raise mistake(f"a number {_FORMS} is wanted")
    name = str(next(iter(value)))
    if name not in SHAPES:
        raise mistake(f"unknown distribution; one of {', '.join(SHAPES)} is wanted{did_you_mean(name, SHAPES)}", name)
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


@dataclass(frozen=True)
class Within:
    """Limits that the place of a distribution sets, whatever its shape; ``whole`` where a count is meant."""

    low: float
    high: float
    whole: bool = False
    unit: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._check, handler(source))

    def _check(self, value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, dict | Shape) and not self._good_number(value):
            raise mistake(f"{self._wanted} {_FORMS} is wanted{without_unit(value)}")
        shape = validate(value)
        stated = shape.lowest > 0 or shape.zero_allowed
        ends = [shape.lowest, shape.mean if math.isinf(shape.highest) else shape.highest]
        broken = self.whole and isinstance(shape, Fixed | Uniform) and any(end != int(end) for end in ends)
        if broken or ends[1] > self.high or (stated and shape.lowest < self.low):
            raise mistake(f"every value must be {self._wanted}")
        return shape

    def _good_number(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.low <= value <= self.high and (not self.whole or value == int(value))

    @property
    def _wanted(self) -> str:
        return f"a {'whole ' if self.whole else ''}number {self.unit}from {plain(self.low)} to {plain(self.high)}"
