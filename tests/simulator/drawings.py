"""Small pictures for requests."""

from __future__ import annotations

import base64
import io
import random
from typing import Any

from PIL import Image


def drawing(number: int, width: int = 224, height: int = 224) -> Image.Image:
    """Noise; another ``number`` is another picture."""
    return Image.frombytes("RGB", (width, height), random.Random(number).randbytes(3 * width * height))


def data_url(picture: Image.Image, kind: str = "png", **options: Any) -> str:
    """The picture in a file of this kind."""
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def image_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def about(parts: list[dict[str, Any]], tokens: int = 8, **more: Any) -> dict[str, Any]:
    """A streamed chat request with these parts, whose usage is asked for."""
    messages = [{"role": "user", "content": parts}]
    options = {"stream_options": {"include_usage": True}} if more.get("stream", True) else {}
    return {"messages": messages, "max_tokens": tokens, "ignore_eos": True, "stream": True, **options, **more}
