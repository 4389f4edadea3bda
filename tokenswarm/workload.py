"""The parts of a scenario that say how hard, for which question, and what is good enough."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from tokenswarm.level_search import RateSearch, UserSearch
from tokenswarm.open_load import Open
from tokenswarm.replay_load import Replay
from tokenswarm.wanted import Model, Number, OneOf, Seconds, Switch, Whole, mistake

Users = Annotated[int, Whole(1, 100_000)]
Count = Annotated[int, Whole(1, 10_000_000)]


class Sessions(Model):
    """How many measured sessions a level has: ``max(at_least, per_user × users)``."""

    per_user: Count | None = Field(default=None, description="Sessions for each user of the level.")
    at_least: Count = Field(default=1, description="Sessions even where per_user would give fewer.")

    def count(self, users: int) -> int:
        return max(self.at_least, (self.per_user or 0) * users)


def _as_sessions(value: Any) -> Any:
    if isinstance(value, dict) and not value:
        raise mistake("a number, or per_user and at_least, is wanted")
    if value is None or isinstance(value, dict | Sessions):
        return value
    return {"at_least": value}


def _as_levels(value: Any) -> Any:
    if isinstance(value, UserSearch) or (isinstance(value, dict) and "search" in value):
        return value
    return value if isinstance(value, list | tuple) else [value]


def _levels_tag(value: Any) -> str:
    return "<search>" if isinstance(value, UserSearch | dict) else "<users>"


def _add_requests(schema: dict[str, Any]) -> None:
    description = "Another word for sessions, where every session has one turn."
    schema["properties"]["requests"] = schema["properties"]["sessions"] | {
        "title": "Requests",
        "description": description,
    }


class Closed(Model):
    """Closed loop: each user starts its next session when the last one has ended."""

    model_config = ConfigDict(json_schema_extra=_add_requests)

    users: Annotated[
        Annotated[tuple[Users, ...], Field(min_length=1, max_length=1000), Tag("<users>")]
        | Annotated[UserSearch, Tag("<search>")],
        Discriminator(_levels_tag),
        BeforeValidator(_as_levels, json_schema_input_type=Users | list[Users] | UserSearch),
    ] = Field(description="Users at the same time; a list gives one level after the other, search looks for the most.")
    sessions: Annotated[Sessions | None, BeforeValidator(_as_sessions, json_schema_input_type=Count | Sessions)] = (
        Field(
            default=None,
            validation_alias=AliasChoices("sessions", "requests"),
            description="Measured sessions of a level, exactly: a number, or per_user and at_least.",
        )
    )
    duration_s: Annotated[float, Seconds(0, 604_800, above=True)] | None = Field(
        default=None, description="Measured time of a level in seconds, instead of a number of sessions."
    )
    warmup_sessions: Annotated[int, Whole(0, 1_000_000)] = Field(
        default=0, description="Sessions before the measured ones of each level; they get rows of their own."
    )
    warmup_s: Annotated[float, Seconds(0, 86_400)] | None = Field(
        default=None, description="Time at full load before a level's duration_s begins, in seconds."
    )
    tail: Annotated[Literal["fill", "drain"], OneOf()] = Field(
        default="fill",
        description="fill keeps all users busy until the last measured session has ended; drain lets them fall idle.",
    )
    time_limit_s: Annotated[float, Seconds(0, 604_800, above=True)] | None = Field(
        default=None, description="A level that takes longer is ended and marked, in seconds."
    )
    fresh_prompts: Annotated[bool, Switch()] = Field(
        default=True,
        description="false repeats the prompts of the first level at every level; the levels after it are then marked.",
    )
    drain_limit_s: Annotated[float, Seconds(0, 86_400)] = Field(
        default=60, description="How long sessions in flight at the end of a level may still run, in seconds."
    )


class Load(Model):
    """How hard; without it Locust's own options (-u, -r, -t) or its page decide. Exactly one of the three."""

    closed: Closed | None = Field(default=None, description="A fixed number of users, level by level.")
    open: Open | None = Field(default=None, description="A rate of arrivals, whatever the server does, level by level.")
    replay: Replay | None = Field(default=None, description="The sessions of a trace at their own times.")

    @property
    def search(self) -> UserSearch | RateSearch | None:
        """The search for the highest load, where the scenario asks for one."""
        asked = self.closed.users if self.closed is not None else self.open.rates if self.open is not None else None
        return asked if isinstance(asked, UserSearch | RateSearch) else None

    @property
    def most_users(self) -> int:
        """Locust's users at the largest level."""
        if self.closed is None:
            by_clock = self.open or self.replay
            assert by_clock is not None, "a rule wants one of the three"
            return by_clock.max_users
        asked = self.closed.users
        return asked.search.limit if isinstance(asked, UserSearch) else max(asked)


class PrefixCacheTest(Model):
    """What does the prefix cache buy? Sessions run in pairs with the same text, one of which finds nothing cached."""

    cold: Annotated[Literal["session", "request"], OneOf()] = Field(
        default="session",
        description="session: a cold session reuses only its own earlier requests; request: nothing at all.",
    )
    isolate: Annotated[Literal["auto", "salt", "nonce"], OneOf()] = Field(
        default="auto",
        description="What keeps cold requests from cached ones: cache_salt, a nonce, or what the probe finds to work.",
    )
    throughput: Annotated[bool, Switch()] = Field(
        default=False, description="After each paired level also whole levels in the order cold, warm, warm, cold."
    )


def _even(value: int) -> int:
    if value % 2:
        raise mistake("an even number is wanted: every other round goes the other way, so that an even drift cancels")
    return value


class Interference(Model):
    """What do the traffic classes do to each other? Each runs alone with its users, then all together, in turns."""

    blocks: Annotated[int, Whole(2, 1000), AfterValidator(_even)] = Field(
        default=6, description="Blocks of each class alone, and as many of all together; an even number."
    )


QuantileName = Literal["mean", "p50", "p90", "p95", "p99"]
Limits = Annotated[
    dict[Annotated[QuantileName, OneOf()], Annotated[float, Seconds(0, 86_400, above=True)]],
    Field(min_length=1),
]


class Objective(Model):
    """What is good enough."""

    ttft_s: Limits | None = Field(default=None, description="Limits of the time to first token, in seconds.")
    tpot_s: Limits | None = Field(default=None, description="Limits of the time per output token, in seconds.")
    e2e_s: Limits | None = Field(default=None, description="Limits of the whole request's time, in seconds.")
    job_s: Limits | None = Field(
        default=None, description="Limits of a whole session's time, tools and thinking included, in seconds."
    )
    failed: Annotated[float, Number(0, 1)] = Field(
        default=0.01, description="Largest share of requests that may fail, from 0 to 1."
    )
