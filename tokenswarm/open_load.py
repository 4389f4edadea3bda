"""Open loop: sessions arrive by the clock, whether the server keeps up or not."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from tokenswarm.arrivals import Arrivals, Stretch
from tokenswarm.level_search import RateSearch
from tokenswarm.wanted import Model, Number, OneOf, Seconds, Whole, mistake, nearest, plain

PerSecond = Annotated[float, Number(0, 100_000, above=True)]
Cap = Annotated[int, Whole(1, 100_000)]
_RATE = "a rate per second, {ramp: [first, last]} or {steps: [rates]}"


class Steady(Model):
    """One rate for the whole level; a bare number means this."""

    steady: PerSecond = Field(description="Arrivals a second.")

    def stretches(self, length_s: float) -> tuple[Stretch, ...]:
        return (Stretch(length_s, self.steady, self.steady),)

    @property
    def label(self) -> str:
        return f"{plain(self.steady)}/s"


class Ramp(Model):
    """The rate goes evenly from the first to the last value over the level."""

    ramp: tuple[PerSecond, PerSecond] = Field(description="First and last rate, arrivals a second.")

    def stretches(self, length_s: float) -> tuple[Stretch, ...]:
        return (Stretch(length_s, *self.ramp),)

    @property
    def label(self) -> str:
        return f"{plain(self.ramp[0])} to {plain(self.ramp[1])}/s"


class Steps(Model):
    """Equal parts of the level, one rate after the other without a pause between."""

    steps: Annotated[tuple[PerSecond, ...], Field(min_length=2, max_length=1000)] = Field(
        description="Rates, arrivals a second."
    )

    def stretches(self, length_s: float) -> tuple[Stretch, ...]:
        return tuple(Stretch(length_s / len(self.steps), rate, rate) for rate in self.steps)

    @property
    def label(self) -> str:
        return f"{' then '.join(map(plain, self.steps))}/s"


AnyRate = Steady | Ramp | Steps


def _as_rate(value: Any) -> Any:
    if isinstance(value, AnyRate):
        return value
    if not isinstance(value, dict):
        return {"steady": value}
    if len(value) != 1 or next(iter(value)) not in ("steady", "ramp", "steps"):
        raise mistake(f"{_RATE} is wanted")
    return value


def _tag(value: Any) -> str:
    return f"<{next(iter(value)) if isinstance(value, dict) else type(value).__name__.lower()}>"


Rate = Annotated[
    Annotated[Steady, Tag("<steady>")] | Annotated[Ramp, Tag("<ramp>")] | Annotated[Steps, Tag("<steps>")],
    Discriminator(_tag),
    BeforeValidator(_as_rate, json_schema_input_type=PerSecond | Steady | Ramp | Steps),
]
Rates = Annotated[tuple[Rate, ...], Field(min_length=1, max_length=1000)]


def _as_rates(value: Any) -> Any:
    if isinstance(value, RateSearch) or (isinstance(value, dict) and "search" in value):
        return value
    return value if isinstance(value, list | tuple) else [value]


def _rates_tag(value: Any) -> str:
    return "<search>" if isinstance(value, RateSearch | dict) else "<rates>"


RatesOrSearch = Annotated[
    Annotated[Rates, Tag("<rates>")] | Annotated[RateSearch, Tag("<search>")],
    Discriminator(_rates_tag),
    BeforeValidator(_as_rates, json_schema_input_type=Rate | list[Rate] | RateSearch),
]


class GammaProcess(Model):
    """Independent gaps of a gamma distribution."""

    burstiness: Annotated[float, Number(0.01, 100)] = Field(
        description="Shape of the gaps: below 1 in bursts, 1 as poisson, above 1 more regular (as in vLLM's benchmark)."
    )


class Gamma(Model):
    """Arrivals in bursts, or more regular than chance."""

    gamma: GammaProcess = Field(description="burstiness.")


def _as_process(value: Any) -> Any:
    if not isinstance(value, Gamma) and value not in ("constant", "poisson") and not _gamma_is_meant(value):
        raise mistake("constant, poisson or {gamma: {burstiness: 0.5}} is wanted")
    return value


def _gamma_is_meant(value: Any) -> bool:
    return isinstance(value, dict) and any(nearest(str(key), ["gamma"]) for key in value)


def _process_tag(value: Any) -> str:
    return "<word>" if isinstance(value, str) else "<gamma>"


ArrivalProcess = Annotated[
    Annotated[Literal["constant", "poisson"], Tag("<word>")] | Annotated[Gamma, Tag("<gamma>")],
    Discriminator(_process_tag),
    BeforeValidator(_as_process),
]
WhenFull = Annotated[Literal["refuse", "wait"], OneOf()]
MAX_USERS = "At most so many sessions at the same time; with several workers each has its part."
WHEN_FULL = "An arrival beyond max_users: refuse counts it as failed (not_admitted), wait lets it wait its turn."


class Open(Model):
    """Open loop: one level for each rate, all of the same length."""

    requests_per_s: RatesOrSearch | None = Field(
        default=None, description="Arrivals a second, where every session has one turn; a list gives several levels."
    )
    sessions_per_s: RatesOrSearch | None = Field(
        default=None, description="Arrivals of sessions a second; their later turns follow the answers."
    )
    arrivals: ArrivalProcess = Field(default="poisson", description="constant, poisson, or gamma with its burstiness.")
    duration_s: Annotated[float, Seconds(0, 604_800, above=True)] = Field(
        description="Measured time of a level, in seconds: everything that arrives in it is measured to its end."
    )
    warmup_s: Annotated[float, Seconds(0, 86_400)] = Field(
        default=0, description="Time at the level's first rate before it, in seconds; its sessions are not measured."
    )
    max_users: Cap = Field(default=512, description=MAX_USERS)
    when_full: WhenFull = Field(default="refuse", description=WHEN_FULL)
    drain_limit_s: Annotated[float, Seconds(0, 86_400)] = Field(
        default=60, description="How long sessions may still run after the last arrival, in seconds."
    )

    @property
    def rates(self) -> tuple[AnyRate, ...] | RateSearch:
        chosen = self.sessions_per_s if self.requests_per_s is None else self.requests_per_s
        assert chosen is not None, "a rule wants one of the two"
        return chosen

    def arrivals_at(self, rate: AnyRate) -> Arrivals:
        """The warm-up, if there is one, and the measured time."""
        measured = rate.stretches(self.duration_s)
        first = measured[0].start_per_s
        warmup = (Stretch(self.warmup_s, first, first),) if self.warmup_s else ()
        if isinstance(self.arrivals, Gamma):
            return Arrivals("gamma", (*warmup, *measured), self.arrivals.gamma.burstiness)
        return Arrivals(self.arrivals, (*warmup, *measured))
