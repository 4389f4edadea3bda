"""A stream of captions: a question about pictures, then further ones with the pictures and answers in the history."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Protocol

from tokenswarm.records import SessionEnd
from tokenswarm.tokens import TokenCounter
from tokenswarm.traffic.session import Answer, Heard
from tokenswarm.traffic.turn import Turn
from tokenswarm.traffic_settings import CaptioningTraffic


class Shown(Protocol):
    """A picture ready to be sent. ``json``: its data URL as a part of JSON; sides in pixels; the file's bytes."""

    @property
    def json(self) -> Any: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...


class Pictures(Protocol):
    """What a session is about; ``questions`` are a data set's own."""

    @property
    def pictures(self) -> Sequence[Shown]: ...
    @property
    def questions(self) -> Sequence[str]: ...


class CaptionSession:
    """Turns of one session. Lengths and pauses come from ``rng`` alone, words from ``text_rng``."""

    keeps_answers = True

    def __init__(
        self,
        traffic: CaptioningTraffic,
        counter: TokenCounter,
        about: Pictures,
        rng: Random,
        text_rng: Random,
    ) -> None:
        """A data set's own questions come before made-up ones."""
        self._traffic = traffic
        self._counter = counter
        self._rng = rng
        self._texts = text_rng
        self._turns = traffic.turns.sample_int(rng)
        self._about = about
        self._played = 0
        system = traffic.system_prompt
        self._messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]

    def next(self) -> Turn | None:
        if self._played >= self._turns:
            return None
        first = self._played == 0
        text = self._question(first)
        self._messages.append({"role": "user", "content": self._about_pictures(text) if first else text})
        self._played += 1
        return Turn(
            messages=self._messages.copy(),
            max_tokens=self._traffic.output_tokens.sample_int(self._rng),
            pause_s=0.0 if first else self._traffic.think_time_s.sample(self._rng),
            ignore_eos=self._traffic.ignore_eos,
            images=len(self._about.pictures),
            image_pixels=sum(picture.width * picture.height for picture in self._about.pictures),
            image_bytes=sum(picture.file_bytes for picture in self._about.pictures),
        )

    def hear(self, answer: Answer) -> Heard:
        self._messages.append({"role": "assistant", "content": answer.text})
        return Heard(end=SessionEnd.DONE if self._played >= self._turns else None)

    def _question(self, first: bool) -> str:
        lengths = self._traffic.question_tokens if first else self._traffic.followup_tokens
        made_up = self._counter.make_text(self._texts, lengths.sample_int(self._rng))
        told = self._about.questions
        return told[self._played] if self._played < len(told) else made_up

    def _about_pictures(self, text: str) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": picture.json}} for picture in self._about.pictures
        ]
        return [*parts, {"type": "text", "text": text}]
