"""A made-up inference server whose token counts can be checked by eye, spoken to without a socket.

Every piece of text is a word with the space before it, a sign, or white space. A word is one token for each six
letters begun, a sign one token, a line end one token. What the pattern ``glue`` finds is one token, so that counts are
no longer sums. Ids are given in the order of appearance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tokenswarm.errors import TargetError

PIECES = re.compile(r" ?[A-Za-z]+|\n| +|[^\sA-Za-z]")


def pieces(text: str, glue: str | None = None) -> list[str]:
    """Tokens of ``text``."""
    if glue is not None:
        text = re.sub(glue, " X", text)
    found = []
    for piece in PIECES.findall(text):
        space = piece.startswith(" ") and len(piece) > 1
        letters = piece[1:] if space else piece
        cut = [letters[at : at + 6] for at in range(0, len(letters), 6)]
        found += [" " + cut[0], *cut[1:]] if space else cut
    return found


class WordServer:
    """``speaks``: any of ``vllm``, ``llama.cpp``, ``sglang``, ``usage``; what it does not speak is a 404.

    A chat is ``<`` role line end text ``>`` for each message and ``<`` assistant line end behind them. Tools stand as
    JSON behind the text of the system message (``tools="behind"``), before everything (``"first"``) or behind the
    user's messages (``"last"``). What ``refuses`` gives for a request's fields is the text of a 400.
    """

    def __init__(
        self,
        *speaks: str,
        glue: str | None = None,
        longest: int = 100_000,
        tools: str = "behind",
        refuses: Callable[[dict[str, Any]], str | None] = lambda body: None,
    ) -> None:
        self.speaks = speaks
        self.tools = tools
        self.refuses = refuses
        self.glue = glue
        self.longest = longest
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.vocabulary: dict[str, int] = {}

    def rendered(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str:
        offered = f"\n\n{json.dumps(tools)}" if tools else ""
        texts = [f"{m['content'] or ''}{json.dumps(m['tool_calls']) if 'tool_calls' in m else ''}" for m in messages]
        if self.tools == "behind" and offered:
            if messages[0]["role"] != "system":
                messages, texts = [{"role": "system"}, *messages], ["", *texts]
            texts[0] += offered
        elif self.tools == "last":
            texts = [
                f"{text}{offered}" if m["role"] == "user" else text for m, text in zip(messages, texts, strict=True)
            ]
        head = offered if self.tools == "first" else ""
        whole = [f"<{m['role']}\n{text}>" for m, text in zip(messages, texts, strict=True)]
        return head + "".join(whole) + "<assistant\n"

    def count(self, prompt: str | list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> int:
        """The truth that every answer is made from."""
        return len(self.ids(prompt if isinstance(prompt, str) else self.rendered(prompt, tools)))

    def ids(self, text: str) -> list[int]:
        known = self.vocabulary
        return [known.setdefault(piece, len(known)) for piece in pieces(text, self.glue)]

    def post(self, url: str, body: dict[str, Any]) -> Any:
        self.asked.append((url, body))
        refusal = self.refuses(body) if url.startswith("/v1/") else None
        if refusal is not None:
            raise TargetError(f"{url} answered 400: {refusal}")
        answer = self._answer(url, body)
        if answer is None:
            raise TargetError(f"{url}: HTTP 404")
        return answer

    def _answer(self, url: str, body: dict[str, Any]) -> Any:
        match url:
            case "/tokenize":
                return self._tokenize(body)
            case "/apply-template" if "llama.cpp" in self.speaks:
                return {"prompt": self.rendered(body["messages"], self._offered(body))}
            case "/detokenize" if {"vllm", "llama.cpp"} & set(self.speaks):
                words = list(self.vocabulary)
                return {"prompt": "".join(words[token] for token in body["tokens"])}
            case "/v1/chat/completions" | "/v1/completions" if "usage" in self.speaks:
                assert body["max_tokens"] == 1
                assert not body["stream"]
                tokens = self.count(body.get("messages") or body["prompt"], self._offered(body))
                return {"usage": {"prompt_tokens": tokens}} if tokens <= self.longest else None
        return None

    @staticmethod
    def _offered(body: dict[str, Any]) -> list[dict[str, Any]] | None:
        return None if body.get("tool_choice") == "none" else body.get("tools")

    def _tokenize(self, body: dict[str, Any]) -> Any:
        if "llama.cpp" in self.speaks:
            return {"tokens": self.ids(body.get("content", ""))}
        chat = "messages" in body
        if not ("vllm" in self.speaks or ("sglang" in self.speaks and not chat)):
            return None
        ids = self.ids(self.rendered(body["messages"], body.get("tools")) if chat else body["prompt"])
        return {"count": len(ids), "tokens": ids} if len(ids) <= self.longest else None
