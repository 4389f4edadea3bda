"""The parts of a scenario that say what is sent and how hard: traffic, load and objectives."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, ConfigDict, Discriminator, Field, Tag

from tokenswarm.distributions import Distribution, Fixed, Within
from tokenswarm.target_settings import ExistingFile
from tokenswarm.wanted import Model, Number, OneOf, Seconds, Switch, Text, Whole, did_you_mean, mistake

KINDS = ("chat",)
KINDS_TO_COME = ("agentic", "captioning")

Name = Annotated[str, Text("a name", longest=64)]
Users = Annotated[int, Whole(1, 100_000)]
Count = Annotated[int, Whole(1, 10_000_000)]
Tokens = Annotated[Distribution, Within(1, 10_000_000, whole=True)]


class PromptFile(Model):
    """Prompts from a file, with their own turns and lengths."""

    file: ExistingFile = Field(description="JSONL or ShareGPT file, relative to the scenario's folder.")


def _prompts_tag(value: Any) -> str:
    return "<file>" if isinstance(value, dict | PromptFile) else "<name>"


Prompts = Annotated[
    Annotated[Literal["words", "random_ids"], OneOf(other=" or {file: PATH}"), Tag("<name>")]
    | Annotated[PromptFile, Tag("<file>")],
    Discriminator(_prompts_tag),
]


class ChatTraffic(Model):
    """A class of sessions: a person or program that talks to the model in one or more turns."""

    name: Name = Field(default="chat", description="Name in every table; unique within the scenario.")
    kind: Literal["chat"] = Field(default="chat", description="Kind of session.")
    weight: Annotated[float, Number(0, 1_000_000, above=True)] = Field(
        default=1, description="Share of the sessions, in relation to the weights of the other classes."
    )
    objective: Name | None = Field(default=None, description="Name of the objective that this class must meet.")
    prompts: Prompts = Field(
        default="words",
        description="words: natural-looking text; random_ids: random token ids; or a file.",
    )
    turns: Annotated[Distribution, Within(1, 10_000, whole=True)] = Field(
        default=Fixed(fixed=1),
        description="Requests in a session; the model's answers stay in the history. Not for prompts from a file.",
    )
    input_tokens: Tokens = Field(
        default=Fixed(fixed=512),
        description="Tokens that a turn adds to the prompt, as the server counts them, with the chat template's own. "
        "Not for prompts from a file.",
    )
    output_tokens: Tokens = Field(
        default=Fixed(fixed=128), description="Asked length of an answer in tokens (max_tokens)."
    )
    think_time_s: Annotated[Distribution, Within(0, 86_400, unit="of seconds ")] = Field(
        default=Fixed(fixed=0), description="Pause before each further turn of a session, in seconds."
    )
    ignore_eos: Annotated[bool, Switch()] = Field(
        default=True, description="Let the model run to the asked length, where the server can; false: natural ends."
    )
    system_prompt: Annotated[str, Text(longest=500_000, lines=True)] | None = Field(
        default=None, description="Text of a system message that begins every session."
    )


def _known_kind(value: Any) -> Any:
    kind = value.get("kind", "chat") if isinstance(value, dict) else "chat"
    if kind in KINDS_TO_COME:
        raise mistake("this kind is not supported yet; only chat is", "kind")
    if kind not in KINDS:
        hint = did_you_mean(kind, (*KINDS, *KINDS_TO_COME)) if isinstance(kind, str) else ""
        raise mistake(f"unknown kind; chat is wanted{hint}", "kind")
    return value


Traffic = Annotated[ChatTraffic, BeforeValidator(_known_kind, json_schema_input_type=ChatTraffic)]


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
    return value if isinstance(value, list | tuple) else [value]


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
        tuple[Users, ...],
        BeforeValidator(_as_levels, json_schema_input_type=Users | list[Users]),
        Field(min_length=1, max_length=1000),
    ] = Field(description="Users at the same time; a list gives one level after the other.")
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
    drain_limit_s: Annotated[float, Seconds(0, 86_400)] = Field(
        default=60, description="How long sessions in flight at the end of a level may still run, in seconds."
    )


class Load(Model):
    """How hard; without it Locust's own options (-u, -r, -t) or its page decide."""

    closed: Closed = Field(description="A fixed number of users, level by level.")


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
    failed: Annotated[float, Number(0, 1)] = Field(
        default=0.01, description="Largest share of requests that may fail, from 0 to 1."
    )
