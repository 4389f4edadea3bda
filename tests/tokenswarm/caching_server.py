"""A made-up inference server with a prefix cache, spoken to without a socket: what it finds is plain arithmetic."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from word_server import WordServer

from tokenswarm.cached_tokens import Prober, Reply
from tokenswarm.errors import TargetError


@dataclass
class CachingServer:
    """Keeps every prompt for ever, in blocks, and always computes at least one token.

    Rendering and tokens are those of ``WordServer``. ``tells`` is where it says what it found: ``usage``, ``nonzero``
    (usage, but only what is not 0), ``deepseek``, ``timings`` or ``nothing``; ``page`` is the engine whose counters it
    shows, if any. A ``salt`` isolates, is ignored, is refused, or hides a prompt for ever. ``dropped`` blocks of what
    is known are computed again, as with a draft model. A prompt can be found once ``late`` more requests have come.
    Every ``tenant`` th request is followed by one of somebody else. The requests with the numbers ``busy`` get a 503.
    """

    block: int = 16
    caches: bool = True
    salt: str = "isolates"
    tells: str = "usage"
    page: str | None = None
    enabled: bool | None = None
    context: int | None = None
    limit: int = 100_000
    dropped: int = 0
    late: int = 0
    tenant: int = 0
    ends_after: int = 1_000_000
    busy: tuple[int, ...] = ()
    words: WordServer = field(default_factory=lambda: WordServer("vllm"))
    asked: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known: list[tuple[int, Any, list[int]]] = []
        self.queried = self.found = 0

    def prober(self, **request: Any) -> Prober:
        return Prober(self.post, self.get, "m", request=request)

    def post(self, body: dict[str, Any]) -> Reply:
        self.asked.append(body)
        if len(self.asked) > self.ends_after:
            raise TargetError("http://h/v1/chat/completions: no answer in time")
        if len(self.asked) in self.busy:
            return Reply(503, words="all slots are busy")
        assert (body["model"], body["max_tokens"], body["stream"]) == ("m", 1, False)
        if "cache_salt" in body and self.salt == "refused":
            return Reply(400, words="Unrecognized request argument supplied: cache_salt")
        prompt = body.get("prompt") or self.words.rendered(body["messages"])
        ids = self.words.ids(prompt)
        if len(ids) + 1 > self.limit:
            return Reply(400, words=f"the context has {self.limit} tokens")
        return Reply(200, self._answer(ids, self._look_up(ids, body.get("cache_salt"))))

    def _look_up(self, ids: list[int], salt: str | None) -> int:
        space: Any = {"isolates": salt, "hides": len(self.asked) if salt else None}.get(self.salt)
        common = [
            sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, known, strict=False)))
            for due, where, known in self._known
            if due <= len(self.asked) and where == space
        ]
        self._known.append((len(self.asked) + 1 + self.late, space, ids))
        blocks = min(max(common, default=0), len(ids) - 1) // self.block
        cached = max(0, blocks - self.dropped) * self.block if self.caches else 0
        self.queried += len(ids)
        self.found += cached
        if self.tenant and len(self.asked) % self.tenant == 0:
            self.queried += 77
        return cached

    def _answer(self, ids: list[int], cached: int) -> dict[str, Any]:
        usage: dict[str, Any] = {"prompt_tokens": len(ids), "completion_tokens": 1}
        match self.tells:
            case "usage":
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            case "nonzero":
                usage["prompt_tokens_details"] = {"cached_tokens": cached} if cached else None
            case "deepseek":
                usage["prompt_cache_hit_tokens"] = cached
            case "timings":
                return {"usage": usage, "timings": {"cache_n": cached, "prompt_n": len(ids) - cached}}
        return {"usage": usage}

    def get(self, url: str) -> tuple[int, bytes]:
        if url == "/v1/models":
            model = {"id": "m", "owned_by": self.page or "somebody", "max_model_len": self.context}
            return 200, json.dumps({"data": [{"id": "other", "max_model_len": 8}, model]}).encode()
        assert url == "/metrics"
        return (404, b"Not Found") if self.page is None else (200, self._page().encode())

    def _page(self) -> str:
        if self.page == "sglang":
            return f"sglang:prompt_tokens_total {self.queried}\nsglang:cached_tokens_total {self.found}\n"
        if self.page == "llamacpp":
            return (
                f"llamacpp:prompt_tokens_total {self.queried - self.found}\n"
                f"llamacpp:prompt_tokens_cached_total {self.found}\n"
            )
        looked_up = self.queried if self.enabled is not False else 0
        config = "" if self.enabled is None else f',block_size="{self.block}",enable_prefix_caching="{self.enabled}"'
        return (
            f'vllm:cache_config_info{{engine="0"{config}}} 1.0\n'
            f'vllm:prompt_tokens_total{{engine="0"}} {self.queried}\n'
            f'vllm:prefix_cache_queries_total{{engine="0"}} {looked_up}\n'
            f'vllm:prefix_cache_hits_total{{engine="0"}} {self.found}\n'
        )
