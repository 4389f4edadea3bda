"""How many tokens of a single prompt a server took from its cache, by whatever it tells."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tokenswarm.engine_metrics import EngineName, EngineSample, parse_cache_config, parse_metrics
from tokenswarm.errors import TargetError

SETTLE_S = 0.1  # until a request that has just ended can be found in the cache
LIMIT_S = 60.0  # no further request after that
_COUNTER_READS = 5
_BUSY_TRIES, _BUSY_S = 4, 1.0  # tries, and seconds after each, of a request that finds the server busy
_OWNERS: dict[str, EngineName] = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp"}


class Reply(msgspec.Struct, frozen=True):
    """One answer; ``words`` are the beginning of a refusal, without secrets."""

    status: int
    answer: Any = None  # JSON of a 200
    words: str = ""


@dataclass(frozen=True, slots=True)
class Prober:
    """How the server is reached. Both calls raise ``TargetError`` where no answer comes."""

    post: Callable[[dict[str, Any]], Reply]  # a chat or completion request
    get: Callable[[str], tuple[int, bytes]]  # any URL: status and body
    model: str
    metrics: str = "/metrics"  # URLs
    models: str = "/v1/models"
    request: dict[str, Any] = field(default_factory=dict)  # what the scenario merges into every body


class Seen(msgspec.Struct, frozen=True):
    """What is known of one prompt; None is not told."""

    tokens: int | None = None
    cached: int | None = None
    told: bool = False  # by the answer itself, not by counters


class CannotTell(Exception):
    """Why asking goes no further, in a few words."""


class Refused(CannotTell):
    """The server does not take this request."""


def seen_in(answer: Any) -> Seen:
    """From ``usage`` of an answer in one piece, as OpenAI or DeepSeek have it, or from llama.cpp's ``timings``."""
    answer = answer if isinstance(answer, dict) else {}
    usage, timings = _dict(answer.get("usage")), _dict(answer.get("timings"))
    places = (
        _dict(usage.get("prompt_tokens_details")).get("cached_tokens"),
        usage.get("prompt_cache_hit_tokens"),
        timings.get("cache_n"),
    )
    tokens = next(_counts(usage.get("prompt_tokens")), None)
    told = (count for place in places for count in _counts(place))
    cached = next((count for count in told if tokens is None or count <= tokens), None)
    return Seen(tokens, cached, cached is not None)


def _counts(value: Any) -> Iterator[int]:
    """The value where it can be a number of tokens."""
    if type(value) is int and value >= 0:
        yield value


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


class Asker:
    """Sends prompts one after the other. What the answers do not tell is read off the engine's counters."""

    def __init__(self, server: Prober, api: str) -> None:
        self._server = server
        self._api = api
        self._until_s = time.monotonic() + LIMIT_S
        self.told = False  # some answer had a number of cached tokens
        self.busy = False  # others use the server, so that its counters do not tell of our requests
        self.answers = 0
        text = self._page()
        self._before = self._start = parse_metrics(text)
        self.config = parse_cache_config(text)
        self.context, owner = self._listed()
        self.engine = self.config.engine or owner

    def ask(self, text: str, salt: str | None = None) -> Seen:
        """Raises ``Refused`` for what the server does not take, else ``CannotTell`` where it gives no answer."""
        if time.monotonic() > self._until_s:
            raise CannotTell(f"the probe took longer than {LIMIT_S:.0f} s")
        reply = self._reply(self._body(text, salt))
        if reply.status != 200:
            kind = Refused if reply.status in (400, 413, 422) else CannotTell
            raise kind(f"the server answered {reply.status}: {reply.words}")
        self.answers += 1
        seen = seen_in(reply.answer)
        self.told = self.told or seen.told
        return seen if seen.told else self._counted(seen.tokens)

    def _reply(self, body: dict[str, Any]) -> Reply:
        """A busy server is asked again: what it says of its cache is worth some seconds."""
        for _ in range(_BUSY_TRIES):
            reply = self._server.post(body)
            if reply.status not in (429, 503):
                break
            time.sleep(_BUSY_S)
        return reply

    def again(self, text: str, floor: int, salt: str | None = None) -> Seen:
        """The same prompt once more, and a third time where the second one found no more than ``floor`` tokens."""
        for _ in range(2):
            time.sleep(SETTLE_S)
            seen = self.ask(text, salt)
            if seen.cached is None or seen.cached > floor:
                break
        return seen

    def looked_up(self) -> bool:
        """Whether the engine has counted since the beginning that it looked for prompts in its cache."""
        return (_gained(self._read(), self._start, "prefix_queries") or 0) > 0

    def _body(self, text: str, salt: str | None) -> dict[str, Any]:
        prompt = {"messages": [{"role": "user", "content": text}]} if self._api == "chat" else {"prompt": text}
        body = {"model": self._server.model, **prompt, **self._server.request, "max_tokens": 1, "stream": False}
        for name in ("stream_options", "max_completion_tokens"):
            body.pop(name, None)
        return body if salt is None else body | {"cache_salt": salt}

    def _counted(self, tokens: int | None) -> Seen:
        """By what the counters gained, where they gained this prompt and no other."""
        if tokens is None or not self._before or self.busy:
            return Seen(tokens)
        gained: int | None = None
        for _ in range(_COUNTER_READS):  # they may come a little later than the answer
            page = self._read()
            gained = _gained(page, self._before, "prompt_tokens", "prefix_queries")
            if gained is None or gained >= tokens:
                break
            time.sleep(SETTLE_S)
        cached = _gained(page, self._before, "prefix_hits", "cached_prompt_tokens")
        self._before, self.busy = page, gained is not None and gained != tokens
        return Seen(tokens, cached if gained == tokens else None)

    def _page(self) -> str:
        try:
            status, body = self._server.get(self._server.metrics)
        except TargetError:  # the requests themselves will show whether the server lives
            return ""
        return body.decode("utf-8", "replace") if status == 200 else ""

    def _read(self) -> list[EngineSample]:
        return parse_metrics(self._page())

    def _listed(self) -> tuple[int | None, EngineName | None]:
        """Tokens that fit into the context, and whose server it is, by the model list."""
        status, body = self._server.get(self._server.models)
        model = listed_model(body if status == 200 else b"", self._server.model)
        return stated_context(model), _OWNERS.get(str(model.get("owned_by")))


def listed_model(listing: bytes, name: str) -> dict[str, Any]:
    """What a server's model list says of one model; empty where it says nothing."""
    try:
        data = _dict(json.loads(listing)).get("data")
    except (ValueError, RecursionError):
        return {}
    models = [_dict(model) for model in data] if isinstance(data, list) else []
    return next((model for model in models if model.get("id") == name), {})


def stated_context(model: dict[str, Any]) -> int | None:
    """Tokens that fit into the context, by an entry of the model list."""
    sizes = (model.get("max_model_len"), _dict(model.get("meta")).get("n_ctx"))
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def _gained(after: list[EngineSample], before: list[EngineSample], *fields: str) -> int | None:
    """By all engines together, in the first of the counters that they have."""
    for name in fields:
        ends = [[getattr(one, name) for one in page if getattr(one, name) is not None] for page in (after, before)]
        if all(ends):
            return int(sum(ends[0]) - sum(ends[1]))
    return None
