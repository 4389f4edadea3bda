"""Replay: yesterday's load, or a published trace, with its own times and lengths."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tokenswarm.open_load import MAX_USERS, WHEN_FULL, Cap, WhenFull
from tokenswarm.target_settings import ExistingFile
from tokenswarm.wanted import Model, Number, OneOf, Seconds, Whole, mistake

TraceFormat = Literal["auto", "tokenswarm", "mooncake", "burstgpt", "azure"]


class LengthRange(Model):
    """Requests with another length are left out."""

    min: Annotated[int, Whole(0, 100_000_000)] = Field(default=0, description="Fewest tokens.")
    max: Annotated[int, Whole(1, 100_000_000)] | None = Field(default=None, description="Most tokens.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max is not None and self.min > self.max:
            raise mistake(f"min is at most max ({self.max})", "min")
        return self

    def __contains__(self, tokens: int) -> bool:
        return self.min <= tokens and (self.max is None or tokens <= self.max)


class Replay(Model):
    """The sessions of a trace at the times at which they came."""

    trace: ExistingFile = Field(description="The trace's file, relative to the scenario's folder.")
    format: Annotated[TraceFormat, OneOf()] = Field(
        default="auto", description="auto finds out: tokenswarm or mooncake (JSON lines), burstgpt or azure (CSV)."
    )
    speed: Annotated[float, Number(0, 10_000, above=True)] = Field(
        default=1, description="2 lets everything arrive in half the time."
    )
    from_s: Annotated[float, Seconds(0, 1e9)] = Field(
        default=0, description="Leave out what came before, in seconds of the trace from its first request."
    )
    to_s: Annotated[float, Seconds(0, 1e9, above=True)] | None = Field(
        default=None, description="Leave out what came at or after this, likewise."
    )
    input_tokens: LengthRange = Field(default=LengthRange(), description="Only requests with such prompts.")
    output_tokens: LengthRange = Field(default=LengthRange(), description="Only requests with such answers.")
    most_sessions: Annotated[int, Whole(1, 100_000_000)] | None = Field(
        default=None, description="Only the first ones, so many."
    )
    max_users: Cap = Field(default=512, description=MAX_USERS)
    when_full: WhenFull = Field(default="refuse", description=WHEN_FULL)
    drain_limit_s: Annotated[float, Seconds(0, 86_400)] = Field(
        default=60, description="How long sessions may still run after the last arrival, in seconds."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.to_s is not None and self.to_s <= self.from_s:
            raise mistake(f"more than from_s ({self.from_s:g}) is wanted", "to_s")
        return self
