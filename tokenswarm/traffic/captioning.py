"""A stream of captions: a question about pictures, then further ones with the pictures and answers in the history."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tokenswarm.pictures import Exhibit, data_url
from tokenswarm.records import SessionEnd
from tokenswarm.tokens import TokenCounter
from tokenswarm.traffic.session import Answer, Heard
from tokenswarm.traffic.turn import Turn
from tokenswarm.traffic_settings import CaptioningTraffic


class CaptionSession:
    """Turns of one session. Lengths and pauses come from ``rng`` alone, words from ``text_rng``."""

    keeps_answers = True

    def __init__(
        self,
        traffic: CaptioningTraffic,
        counter: TokenCounter,
        exhibits: Sequence[Exhibit],
        rng: Random,
        text_rng: Random,
    ) -> None:
        """``exhibits``: the pictures, ready to be sent; a data set's own questions stand before made-up ones."""
        self._traffic = traffic
        self._counter = counter
        self._rng = rng
        self._texts = text_rng
        self._turns = traffic.turns.sample_int(rng)
        self._questions = [question for exhibit in exhibits for question in exhibit.questions]
        self._pictures = [picture for exhibit in exhibits for picture in exhibit.pictures]
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
            images=len(self._pictures),
            image_pixels=sum(picture.width * picture.height for picture in self._pictures),
            image_bytes=sum(len(picture.data) for picture in self._pictures),
        )

    def hear(self, answer: Answer) -> Heard:
        self._messages.append({"role": "assistant", "content": answer.text})
        return Heard(end=SessionEnd.DONE if self._played >= self._turns else None)

    def _question(self, first: bool) -> str:
        lengths = self._traffic.question_tokens if first else self._traffic.followup_tokens
        made_up = self._counter.make_text(self._texts, lengths.sample_int(self._rng))
        return self._questions[self._played] if self._played < len(self._questions) else made_up

    def _about_pictures(self, text: str) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": data_url(picture)}} for picture in self._pictures
        ]
        return [*parts, {"type": "text", "text": text}]
