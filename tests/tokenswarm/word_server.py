"""A made-up inference server whose token counts can be checked by eye, spoken to without a socket.

Every piece of text is a word with the space before it, a sign, or white space. A word is one token for each six
letters begun, a sign one token, a line end one token. What the pattern ``glue`` finds is one token, so that counts are
no longer sums. Ids are given in the order of appearance.
"""

from __future__ import annotations

import re
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

    A chat is ``<`` role line end text ``>`` for each message and ``<`` assistant line end behind them.
    """

    def __init__(self, *speaks: str, glue: str | None = None, longest: int = 100_000) -> None:
        self.speaks = speaks
        self.glue = glue
        self.longest = longest
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.vocabulary: dict[str, int] = {}

    def rendered(self, messages: list[dict[str, str]]) -> str:
        return "".join(f"<{m['role']}\n{m['content']}>" for m in messages) + "<assistant\n"

    def count(self, prompt: str | list[dict[str, str]]) -> int:
        """The truth that every answer is made from."""
        return len(self.ids(prompt if isinstance(prompt, str) else self.rendered(prompt)))

    def ids(self, text: str) -> list[int]:
        known = self.vocabulary
        return [known.setdefault(piece, len(known)) for piece in pieces(text, self.glue)]

    def post(self, url: str, body: dict[str, Any]) -> Any:
        self.asked.append((url, body))
        answer = self._answer(url, body)
        if answer is None:
            raise TargetError(f"{url}: HTTP 404")
        return answer

    def _answer(self, url: str, body: dict[str, Any]) -> Any:
        match url:
            case "/tokenize":
                return self._tokenize(body)
            case "/apply-template" if "llama.cpp" in self.speaks:
                return {"prompt": self.rendered(body["messages"])}
            case "/detokenize" if {"vllm", "llama.cpp"} & set(self.speaks):
                words = list(self.vocabulary)
                return {"prompt": "".join(words[token] for token in body["tokens"])}
            case "/v1/chat/completions" | "/v1/completions" if "usage" in self.speaks:
                assert body["max_tokens"] == 1
                assert not body["stream"]
                tokens = self.count(body.get("messages") or body["prompt"])
                return {"usage": {"prompt_tokens": tokens}} if tokens <= self.longest else None
        return None

    def _tokenize(self, body: dict[str, Any]) -> Any:
        if "llama.cpp" in self.speaks:
            return {"tokens": self.ids(body.get("content", ""))}
        chat = "messages" in body
        if not ("vllm" in self.speaks or ("sglang" in self.speaks and not chat)):
            return None
        ids = self.ids(self.rendered(body["messages"]) if chat else body["prompt"])
        return {"count": len(ids), "tokens": ids} if len(ids) <= self.longest else None
