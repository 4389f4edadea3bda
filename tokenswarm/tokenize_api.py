"""Ways to count a prompt's tokens by asking the server, and the choice of the best one.

In order of preference: a tokenizer named in the scenario, the server's own ``/tokenize``, and the
``usage.prompt_tokens`` of tiny requests. Where none answers, words are counted and the run says that it guessed.
"""

from __future__ import annotations

from typing import Any

from tokenswarm.counting import Approximate, Counting, LocalTokenizer, NoIds, Prompt, Server
from tokenswarm.errors import TargetError

_PROBE: Prompt = [{"role": "user", "content": "The"}]


class UsageCounting(NoIds):
    """Reads ``usage.prompt_tokens`` of requests that ask for one token: works with every server that sends usage."""

    source = "calibrated"

    def __init__(self, server: Server) -> None:
        self._server = server
        streaming = ("stream", "stream_options", "n")
        self._extra = {key: value for key, value in server.request.items() if key not in streaming}

    def count(self, prompt: Prompt) -> int:
        tokens = self.told(prompt)
        if tokens is None:
            url = self._server.completions if isinstance(prompt, str) else self._server.chat
            raise TargetError(f"{url}: the answer has no usage.prompt_tokens")
        return tokens

    def told(self, prompt: Prompt) -> int | None:
        """What the usage of a request for one token says; None where it says nothing.

        Raises ``TargetError`` where the server does not take the request.
        """
        url, content = self._server.chat, "messages"
        if isinstance(prompt, str):
            url, content = self._server.completions, "prompt"
        body = {"model": self._server.model, content: prompt, "max_tokens": 1, "stream": False}
        answer = self._server.post(url, {**body, **self._extra})
        usage = answer.get("usage") if isinstance(answer, dict) else None
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    def with_fields(self, fields: dict[str, Any]) -> UsageCounting:
        return UsageCounting(self._server.with_fields(fields))


class VllmTokenize:
    """``/tokenize`` that renders chats itself: vLLM."""

    source = "server"
    cheap = False

    def __init__(self, server: Server) -> None:
        self._server = server

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        url = self._server.root + "/tokenize"
        answer = self._server.post(url, {"model": self._server.model, **body})
        if not isinstance(answer, dict) or not isinstance(answer.get("count"), int):
            raise TargetError(f"{url}: the answer has no count")
        return answer

    def _ask_whole(self, prompt: Prompt) -> dict[str, Any]:
        if isinstance(prompt, str):
            return self._ask({"prompt": prompt})
        return self._ask({"messages": prompt, "add_generation_prompt": True, **self._server.template_fields()})

    def count(self, prompt: Prompt) -> int:
        return int(self._ask_whole(prompt)["count"])

    def prompt_ids(self, prompt: Prompt) -> list[int] | None:
        return _id_list(self._ask_whole(prompt))

    def ids(self, text: str) -> list[int] | None:
        return _id_list(self._ask({"prompt": text, "add_special_tokens": False}))

    def decode(self, ids: list[int]) -> str | None:
        return _detokenized(self._server, {"model": self._server.model, "tokens": ids})

    def vocabulary(self) -> list[int]:
        return []

    def with_fields(self, fields: dict[str, Any]) -> VllmTokenize:
        return type(self)(self._server.with_fields(fields))


class SglangTokenize(VllmTokenize):
    """``/tokenize`` for text alone; what its chat template adds is read from the usage of tiny requests."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._chats = UsageCounting(server)

    def count(self, prompt: Prompt) -> int:
        return super().count(prompt) if isinstance(prompt, str) else self._chats.count(prompt)

    def prompt_ids(self, prompt: Prompt) -> list[int] | None:
        return super().prompt_ids(prompt) if isinstance(prompt, str) else None


class LlamaCppTokenize:
    """llama.cpp: ``/apply-template`` renders a chat, ``/tokenize`` counts it."""

    source = "server"
    cheap = False

    def __init__(self, server: Server) -> None:
        self._server = server

    def _tokens(self, text: str, add_special: bool) -> list[int]:
        url = self._server.root + "/tokenize"
        answer = self._server.post(url, {"content": text, "add_special": add_special, "parse_special": True})
        ids = _id_list(answer)
        if not ids:
            raise TargetError(f"{url}: the answer has no tokens")
        return ids

    def count(self, prompt: Prompt) -> int:
        return len(self.prompt_ids(prompt))

    def prompt_ids(self, prompt: Prompt) -> list[int]:
        return self._tokens(prompt if isinstance(prompt, str) else self._rendered(prompt), add_special=True)

    def _rendered(self, messages: list[dict[str, Any]]) -> str:
        url = self._server.root + "/apply-template"
        request = self._server.request
        choice = {"tool_choice": request["tool_choice"]} if "tool_choice" in request else {}  # none leaves tools out
        answer = self._server.post(url, {"messages": messages, **self._server.template_fields(), **choice})
        if not isinstance(answer, dict) or not isinstance(answer.get("prompt"), str):
            raise TargetError(f"{url}: the answer has no prompt")
        return str(answer["prompt"])

    def ids(self, text: str) -> list[int] | None:
        return self._tokens(text, add_special=False)

    def decode(self, ids: list[int]) -> str | None:
        return _detokenized(self._server, {"tokens": ids})

    def vocabulary(self) -> list[int]:
        return []

    def with_fields(self, fields: dict[str, Any]) -> LlamaCppTokenize:
        return LlamaCppTokenize(self._server.with_fields(fields))


def _id_list(answer: Any) -> list[int] | None:
    tokens = answer.get("tokens") if isinstance(answer, dict) else None
    if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens):
        return tokens
    return None


def _detokenized(server: Server, body: dict[str, Any]) -> str | None:
    try:
        answer = server.post(server.root + "/detokenize", body)
    except TargetError:
        return None
    texts = [answer.get(key) for key in ("prompt", "content", "text")] if isinstance(answer, dict) else []
    return next((text for text in texts if isinstance(text, str)), None)  # vLLM, llama.cpp, SGLang


def find_counting(server: Server, api: str, tokenizer: str | None) -> tuple[Counting, str]:
    """The best way to count for this server, and why it is no better one (empty when it is the best).

    Each way is tried with one short prompt. Raises ``InputError`` where a tokenizer is named and unusable.
    """
    probe: Prompt = "The" if api == "completions" else _PROBE
    if tokenizer is not None:
        local = LocalTokenizer(tokenizer, server.template_fields())
        local.count(probe)
        return local, ""
    reasons = []
    for way in (VllmTokenize, LlamaCppTokenize, SglangTokenize, UsageCounting):
        counting: Counting = way(server)
        try:
            counting.count("The") if way is SglangTokenize else None
            counting.count(probe)
        except TargetError as error:
            reasons.append(str(error))
        else:
            return counting, ""
    return Approximate(), "; ".join(dict.fromkeys(reasons))
