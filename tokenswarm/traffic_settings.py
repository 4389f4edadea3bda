"""The parts of a scenario that say what is sent: one model for each kind of session."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from tokenswarm.curves import LognormalLimits
from tokenswarm.distributions import Distribution, Fixed, Geometric, GeometricLimits, Lognormal, Within
from tokenswarm.image_settings import Images
from tokenswarm.target_settings import ExistingFile
from tokenswarm.wanted import Model, Number, OneOf, Switch, Text, Whole, did_you_mean, mistake

KINDS = ("chat", "agentic", "captioning", "trace")

Name = Annotated[str, Text("a name", longest=64)]
Tokens = Annotated[Distribution, Within(1, 10_000_000, whole=True)]
Pause = Annotated[Distribution, Within(0, 86_400, unit="of seconds ")]
Weight = Annotated[float, Number(0, 1_000_000, above=True)]


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
    weight: Weight = Field(
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
    think_time_s: Pause = Field(
        default=Fixed(fixed=0), description="Pause before each further turn of a session, in seconds."
    )
    ignore_eos: Annotated[bool, Switch()] = Field(
        default=True, description="Let the model run to the asked length, where the server can; false: natural ends."
    )
    system_prompt: Annotated[str, Text(longest=500_000, lines=True)] | None = Field(
        default=None, description="Text of a system message that begins every session."
    )


class SystemPrompt(Model):
    """A long system prompt that sessions share: either so many tokens of generated text, or a text of your own."""

    tokens: Annotated[int, Whole(1, 10_000_000)] | None = Field(
        default=None, description="Exact length of generated text, in tokens as the server counts them."
    )
    text: Annotated[str, Text(longest=500_000, lines=True)] | None = Field(
        default=None, description="The text itself, instead of tokens."
    )
    share: Annotated[float, Number(0, 1)] = Field(
        default=1, description="Share of the sessions that use a shared prompt; each other one has its own, as long."
    )
    pool: Annotated[int, Whole(1, 10_000)] = Field(
        default=1, description="How many different shared prompts there are; sessions take them in turn."
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.tokens is None) == (self.text is None):
            raise mistake("one of tokens and text is wanted")
        if self.text is not None and (self.pool > 1 or self.share < 1):
            raise mistake("pool and share go with tokens only; a text of your own is shared by all sessions")
        return self


class AgenticTraffic(Model):
    """A class of jobs: an agent that calls the model, runs the tools it asks for, and calls again."""

    name: Name = Field(default="agentic", description="Name in every table; unique within the scenario.")
    kind: Literal["agentic"] = Field(description="Kind of session.")
    weight: Weight = Field(
        default=1, description="Share of the sessions, in relation to the weights of the other classes."
    )
    objective: Name | None = Field(default=None, description="Name of the objective that this class must meet.")
    mode: Annotated[Literal["replay", "live"], OneOf()] = Field(
        default="replay",
        description="replay: a recorded or generated course, whatever the model says; live: its own calls count.",
    )
    system_prompt: SystemPrompt | None = Field(default=None, description="System prompt, shared between sessions.")
    tools: ExistingFile | None = Field(
        default=None, description="YAML or JSON file with tool definitions in the OpenAI format."
    )
    trajectories: ExistingFile | None = Field(
        default=None, description="JSONL file of recorded jobs to replay; without it their course is generated."
    )
    tool_choice: Annotated[str, Text("auto, none, required or the name of a tool", longest=64)] = Field(
        default="auto", description="Whether the model may or must call tools: auto, none, required or a tool's name."
    )
    steps: Annotated[Distribution, Within(1, 10_000, whole=True)] = Field(
        default=Geometric(geometric=GeometricLimits(mean=6, max=30)),
        description="Model calls of a generated job, the final answer among them.",
    )
    step_limit: Annotated[int, Whole(1, 10_000)] = Field(
        default=50, description="A job ends after so many model calls, whatever is left to do."
    )
    task_tokens: Tokens = Field(default=Fixed(fixed=200), description="Length of the generated task, in tokens.")
    argument_tokens: Tokens = Field(
        default=Fixed(fixed=16), description="Words in the arguments of a generated tool call."
    )
    output_tokens: Tokens = Field(
        default=Lognormal(lognormal=LognormalLimits(median=120, sigma=0.7, max=2000)),
        description="Asked length of an answer in tokens (max_tokens), where the recording does not tell one.",
    )
    tool_time_s: Pause = Field(
        default=Lognormal(lognormal=LognormalLimits(median=1.2, sigma=0.8, max=60)),
        description="How long a tool takes, in seconds; outside every latency.",
    )
    tool_result_tokens: Tokens = Field(
        default=Lognormal(lognormal=LognormalLimits(median=400, sigma=1.0, max=8000)),
        description="Length of a generated tool result, in tokens.",
    )
    ignore_eos: Annotated[bool, Switch()] | None = Field(
        default=None,
        description="Let the model run to the asked length, where the server can; when left out: in replay only.",
    )

    @property
    def exact_output(self) -> bool:
        """Whether answers are asked to have their length exactly."""
        return self.mode == "replay" if self.ignore_eos is None else self.ignore_eos

    @property
    def first_tokens(self) -> int:
        """Tokens of generated system text in the first prompt."""
        return (self.system_prompt.tokens or 0) if self.system_prompt else 0


class CaptioningTraffic(Model):
    """A class of streams: each asks about a picture, then asks again with picture and answer in the history."""

    name: Name = Field(default="captioning", description="Name in every table; unique within the scenario.")
    kind: Literal["captioning"] = Field(description="Kind of session.")
    weight: Weight = Field(
        default=1, description="Share of the sessions, in relation to the weights of the other classes."
    )
    objective: Name | None = Field(default=None, description="Name of the objective that this class must meet.")
    images: Images = Field(default=Images(), description="Where the pictures come from; made up when left out.")
    images_per_session: Annotated[Distribution, Within(1, 100, whole=True)] = Field(
        default=Fixed(fixed=1), description="Pictures that the first question is about."
    )
    turns: Annotated[Distribution, Within(1, 1000, whole=True)] = Field(
        default=Fixed(fixed=2), description="Questions of a session, all about the same pictures."
    )
    question_tokens: Tokens = Field(
        default=Fixed(fixed=32),
        description="Tokens of the first question's text alone.",
    )
    followup_tokens: Tokens = Field(default=Fixed(fixed=24), description="Tokens of each further question's text.")
    output_tokens: Tokens = Field(
        default=Fixed(fixed=128), description="Asked length of an answer in tokens (max_tokens)."
    )
    think_time_s: Pause = Field(default=Fixed(fixed=0), description="Pause before each further question, in seconds.")
    ignore_eos: Annotated[bool, Switch()] = Field(
        default=True, description="Let the model run to the asked length, where the server can; false: natural ends."
    )
    system_prompt: Annotated[str, Text(longest=500_000, lines=True)] | None = Field(
        default=None, description="Text of a system message that begins every session."
    )


class TraceTraffic(Model):
    """A class of sessions that a trace decides: their times, lengths and what their prompts share."""

    name: Name = Field(default="trace", description="Name in every table; unique within the scenario.")
    kind: Literal["trace"] = Field(description="Kind of session.")
    weight: Weight = Field(default=1, description="Of no effect: the trace says which class a session is of.")
    objective: Name | None = Field(default=None, description="Name of the objective that this class must meet.")
    ignore_eos: Annotated[bool, Switch()] = Field(
        default=True, description="Let the model run to the trace's length, where the server can; false: natural ends."
    )


def _known_kind(value: Any) -> Any:
    kind = value.get("kind", "chat") if isinstance(value, dict) else "chat"
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS) if isinstance(kind, str) else ""
        raise mistake(f"unknown kind; one of {', '.join(KINDS)} is wanted{hint}", "kind")
    return value


def _kind_tag(value: Any) -> str:
    kind = value.get("kind", "chat") if isinstance(value, dict) else getattr(value, "kind", "chat")
    return f"<{kind}>"


AnyTraffic = ChatTraffic | AgenticTraffic | CaptioningTraffic | TraceTraffic
Traffic = Annotated[
    Annotated[ChatTraffic, Tag("<chat>")]
    | Annotated[AgenticTraffic, Tag("<agentic>")]
    | Annotated[CaptioningTraffic, Tag("<captioning>")]
    | Annotated[TraceTraffic, Tag("<trace>")],
    Discriminator(_kind_tag),
    BeforeValidator(_known_kind, json_schema_input_type=AnyTraffic),
]
