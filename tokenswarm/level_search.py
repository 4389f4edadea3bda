"""Where a scenario looks for the highest load that is good enough, instead of listing levels."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from tokenswarm.wanted import Model, Number, Whole, mistake


class UserRange(Model):
    """Upward from ``start``, twice as many each time, then between the last good number and the first bad one."""

    start: Annotated[int, Whole(1, 100_000)] = Field(default=1, description="Users of the first level.")
    limit: Annotated[int, Whole(1, 100_000)] = Field(description="Never more users than this.")
    within: Annotated[float, Number(0.001, 1)] = Field(
        default=0.1, description="Ends when the first bad level is at most so much above the best, as a share of it."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start > self.limit:
            raise mistake(f"start is at most limit ({self.limit})", "start")
        return self


class RateRange(Model):
    """Upward from ``start``, twice as much each time, then between the last good rate and the first bad one."""

    start: Annotated[float, Number(0, 100_000, above=True)] = Field(description="Rate of the first level.")
    limit: Annotated[float, Number(0, 100_000, above=True)] = Field(description="Never a higher rate than this.")
    within: Annotated[float, Number(0.001, 1)] = Field(
        default=0.1, description="Ends when the first bad level is at most so much above the best, as a share of it."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.start > self.limit:
            raise mistake("start is at most limit", "start")
        return self


class UserSearch(Model):
    """The highest number of users that meets every objective."""

    search: UserRange = Field(description="start, limit and within.")


class RateSearch(Model):
    """The highest rate that meets every objective."""

    search: RateRange = Field(description="start, limit and within.")
