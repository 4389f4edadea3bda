"""Requests of the OpenAI API: body in, a checked :class:`Ask` out, or the error a vLLM server would answer with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from simulator import tokenizer
from simulator.api_error import ApiError
from simulator.chunks import Api
from simulator.conversation import chat_ids, image_urls, tool_results
from simulator.encoder import PlacedImage
from simulator.picture import Picture
from simulator.settings import Settings
from simulator.tools import Choice, read_choice

DEFAULT_COMPLETION_TOKENS = 16  # of /v1/completions without max_tokens, as the OpenAI API defines it
LONGEST_SALT = 128  # characters


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class _Common(msgspec.Struct, kw_only=True):
    """Fields of both APIs; whatever else a client sends is ignored, as vLLM does."""

    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = False
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    seed: int | None = None
    n: int | None = 1
    cache_salt: Any = None


class _TemplateOptions(msgspec.Struct):
    enable_thinking: bool | None = True


class _Chat(_Common, kw_only=True):
    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = True
    chat_template_kwargs: _TemplateOptions | None = None
    reasoning_effort: str | None = None
    thinking_token_budget: int | None = None
    include_reasoning: bool = True

    @property
    def thinks(self) -> bool:
        """Whether the model may reason."""
        options = self.chat_template_kwargs
        return self.reasoning_effort != "none" and (options is None or options.enable_thinking is not False)


class _Completion(_Common, kw_only=True):
    prompt: str | list[int]


class Tokenize(msgspec.Struct, kw_only=True):
    """A request to /tokenize."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[Any] | None = None
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False


class _Detokenize(msgspec.Struct, kw_only=True):
    model: str | None = None
    tokens: list[int]


class Ask(msgspec.Struct, kw_only=True, frozen=True):
    """A valid request."""

    api: Api
    prompt: list[int]
    images: tuple[PlacedImage, ...] = ()
    limit: int  # most output tokens
    least: int
    ignore_eos: bool
    stream: bool
    usage: bool
    running_usage: bool
    cached_usage: bool  # usage says how many prompt tokens were cached
    seed: int | None
    salt: str | None
    choice: Choice = Choice("none")
    tool_results: int = 0  # since the user last said something
    thinks: bool = False
    thinking_budget: int | None = None  # most tokens of reasoning, its end included
    hides_reasoning: bool = False


def _decode(body: bytes, shape: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"1 validation error: {error}", "Bad Request", _place(str(error))) from None
    except msgspec.DecodeError as error:
        raise ApiError(400, f"JSON decode error: {error}", "Bad Request", "body") from None


def _place(message: str) -> str:
    """The field a message of msgspec ends with, as ``body.field``."""
    return message.rpartition(" at `$")[2].rstrip("`").join(("body", "")) if " at `$" in message else "body"


def check_model(asked: str | None, settings: Settings) -> None:
    """404 unless it is the served model, or none was named."""
    if asked is not None and asked != settings.model:
        message = f"The model `{asked}` does not exist; this server has `{settings.model}`."
        raise ApiError(404, message, "NotFoundError", "model")


class Draft(msgspec.Struct, frozen=True):
    """A request whose images, if there are any, are still to be read."""

    api: Api
    asked: _Chat | _Completion
    urls: list[str]


def read_draft(api: Api, body: bytes, settings: Settings) -> Draft:
    """A generation request as it stands in its body, or ``ApiError``."""
    asked: _Chat | _Completion = _decode(body, _Chat if api == "chat" else _Completion)
    check_model(asked.model, settings)
    if asked.n not in (None, 1):
        raise ApiError(400, f"n must be 1 here, got {asked.n}", param="n")
    if asked.stream_options is not None and not asked.stream:
        raise ApiError(400, "stream_options needs stream: true", param="stream_options")
    return Draft(api, asked, image_urls(asked.messages, settings.vision) if isinstance(asked, _Chat) else [])


def make_ask(draft: Draft, pictures: Sequence[Picture], settings: Settings) -> Ask:
    """The request with its ``pictures`` read, or ``ApiError``."""
    asked = draft.asked
    prompt = _prompt_of(asked, pictures, settings)
    limit = _limit(asked, len(prompt), settings)
    least = asked.min_tokens or 0
    if least > limit:
        raise ApiError(400, f"min_tokens={least} is more than max_tokens={limit}", param="min_tokens")
    options = asked.stream_options or _StreamOptions()
    return Ask(
        api=draft.api,
        prompt=prompt,
        images=_placed(prompt, pictures),
        limit=limit,
        least=least,
        ignore_eos=bool(asked.ignore_eos),
        stream=bool(asked.stream),
        usage=settings.usage and (bool(options.include_usage) or not asked.stream),
        running_usage=settings.usage and bool(options.include_usage and options.continuous_usage_stats),
        cached_usage=settings.report_cached_tokens,
        seed=asked.seed,
        salt=_salt(asked.cache_salt, settings),
        **(_chat_fields(asked, settings) if isinstance(asked, _Chat) else {}),
    )


def _placed(prompt: list[int], pictures: Sequence[Picture]) -> tuple[PlacedImage, ...]:
    """Where the images are: their ids are those of no word."""
    places: list[PlacedImage] = []
    start = 0
    for picture in pictures:
        start = prompt.index(picture.token, start)
        places.append(PlacedImage(start, start + picture.tokens, picture.key))
        start += picture.tokens
    return tuple(places)


def _chat_fields(asked: _Chat, settings: Settings) -> dict[str, Any]:
    """What only a chat request has, as fields of :class:`Ask`."""
    parses = settings.reasoning is not None
    return {
        "choice": read_choice(asked.tools, asked.tool_choice, asked.parallel_tool_calls),
        "tool_results": tool_results(asked.messages),
        "thinks": parses and asked.thinks,
        "thinking_budget": asked.thinking_token_budget,
        "hides_reasoning": parses and not asked.include_reasoning,
    }


def _salt(asked: Any, settings: Settings) -> str | None:
    """The request's ``cache_salt`` where it has an effect, under the conditions of vLLM."""
    if asked is None or settings.salt == "ignored":
        return None
    if not isinstance(asked, str) or not asked:
        raise ApiError(400, "cache_salt must be a non-empty string if it is given", param="cache_salt")
    if len(asked) > LONGEST_SALT or not set(asked).isdisjoint("@/\\\0"):
        message = f"cache_salt must have at most {LONGEST_SALT} characters and none of '@', '/', '\\', NUL"
        raise ApiError(400, message, param="cache_salt")
    return asked


def _prompt_of(asked: _Chat | _Completion, pictures: Sequence[Picture], settings: Settings) -> list[int]:
    if isinstance(asked, _Chat):
        if not asked.messages:
            raise ApiError(400, "a conversation needs at least one message", param="messages")
        return chat_ids(asked.messages, asked.tools, settings, answer_follows=True, pictures=pictures)
    prompt = tokenizer.encode(asked.prompt) if isinstance(asked.prompt, str) else asked.prompt
    if not prompt:
        raise ApiError(400, "the prompt is empty", param="prompt")
    if not all(0 <= token < tokenizer.VOCABULARY for token in prompt):
        raise ApiError(400, f"token ids must be from 0 to {tokenizer.VOCABULARY - 1}", param="prompt")
    return prompt


def _limit(asked: _Chat | _Completion, prompt_tokens: int, settings: Settings) -> int:
    """Most output tokens, from the request and from what the model's length leaves."""
    left = settings.max_model_len - prompt_tokens
    if left < 1:
        message = (
            f"The prompt has {prompt_tokens} tokens, but the maximum context length of this model is "
            f"{settings.max_model_len} tokens, answer included."
        )
        raise ApiError(400, message, param="input_tokens")
    limit: int | None = asked.max_tokens
    if isinstance(asked, _Chat) and asked.max_completion_tokens is not None:
        limit = asked.max_completion_tokens
    if limit is None:
        return left if isinstance(asked, _Chat) else min(left, DEFAULT_COMPLETION_TOKENS)
    if limit < 1:
        raise ApiError(400, f"max_tokens must be at least 1, got {limit}", param="max_tokens")
    if limit > left:
        message = (
            f"max_tokens={limit} and {prompt_tokens} prompt tokens together exceed the maximum context length of "
            f"{settings.max_model_len} tokens."
        )
        raise ApiError(400, message, param="max_tokens")
    return limit


def read_tokenize(body: bytes, settings: Settings) -> tuple[Tokenize, list[str]]:
    """A request to /tokenize, and the URLs of its images; or ``ApiError``."""
    asked: Tokenize = _decode(body, Tokenize)
    check_model(asked.model, settings)
    return asked, image_urls(asked.messages or [], settings.vision)


def tokenize(asked: Tokenize, pictures: Sequence[Picture], settings: Settings) -> bytes:
    """vLLM's /tokenize: ``{"prompt"}`` or ``{"messages"}`` to ``{"count", "max_model_len", "tokens"}``."""
    if asked.messages is not None:
        known = chat_ids(asked.messages, asked.tools, settings, asked.add_generation_prompt, pictures)
        ids = [token if token >= 0 else tokenizer.IMAGE for token in known]
    elif asked.prompt is not None:
        ids = tokenizer.encode(asked.prompt)
    else:
        raise ApiError(400, "prompt or messages is needed", "Bad Request", "body")
    strings = [tokenizer.word(token) for token in ids] if asked.return_token_strs else None
    answer = {"count": len(ids), "max_model_len": settings.max_model_len, "tokens": ids, "token_strs": strings}
    return msgspec.json.encode(answer)


def detokenize(body: bytes, settings: Settings) -> bytes:
    """vLLM's /detokenize: ``{"tokens"}`` to ``{"prompt"}``."""
    asked = _decode(body, _Detokenize)
    check_model(asked.model, settings)
    return msgspec.json.encode({"prompt": tokenizer.decode(asked.tokens)})


def models(settings: Settings, created: int) -> bytes:
    """The answer of /v1/models."""
    model = {
        "id": settings.model,
        "object": "model",
        "created": created,
        "owned_by": "tokenswarm-simulator",
        "root": settings.model,
        "parent": None,
        "max_model_len": settings.max_model_len,
    }
    return msgspec.json.encode({"object": "list", "data": [model]})
