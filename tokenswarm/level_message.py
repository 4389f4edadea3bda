"""A level on its way from the master to the workers, which cannot know it before: a search finds its levels."""

from __future__ import annotations

from typing import Any

import msgspec

from tokenswarm.schedule import Level


def level_message(level: Level) -> dict[str, Any]:
    """Plain values that ``level_of`` makes the level of again."""
    plain: dict[str, Any] = msgspec.to_builtins(level)
    return plain


def level_of(message: dict[str, Any]) -> Level:
    return msgspec.convert(message, Level)
