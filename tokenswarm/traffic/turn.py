"""What one request of a session asks for."""

from __future__ import annotations

from typing import Any

import msgspec


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """Either ``messages`` (a chat) or ``prompt`` (a completion: text or token ids) is set.

    ``input_tokens``: in the first turn the whole prompt as the server counts it, in later turns what the new message
    adds; None where the length was not chosen (prompts from a file). ``pause_s``: think or tool time before the
    request, in seconds. ``tools`` and ``tool_choice`` as the OpenAI chat API has them. ``prefix`` names the text at the
    head of the prompt that other sessions share on purpose, ``prefix_tokens`` is its length. ``images`` counts the
    pictures in the prompt, ``image_pixels`` and ``image_bytes`` (of the files) are their sums.
    """

    messages: list[dict[str, Any]] | None = None
    prompt: str | list[int] | None = None
    max_tokens: int
    input_tokens: int | None = None
    pause_s: float = 0.0
    ignore_eos: bool = True
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    prefix: str | None = None
    prefix_tokens: int | None = None
    images: int | None = None
    image_pixels: int | None = None
    image_bytes: int | None = None
