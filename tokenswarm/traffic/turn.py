"""What one request of a session asks for."""

from __future__ import annotations

import msgspec


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Either ``messages`` (a chat) or ``prompt`` (a completion: text or token ids) is set.

    ``input_tokens``: in the first turn the whole prompt as the server counts it, in later turns what the new message
    adds; None where the length was not chosen (prompts from a file). ``think_s``: pause before the request, in seconds.
    """

    messages: list[dict[str, str]] | None = None
    prompt: str | list[int] | None = None
    max_tokens: int
    input_tokens: int | None = None
    think_s: float = 0.0
    ignore_eos: bool = True
