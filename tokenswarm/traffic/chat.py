"""A chat: a user who asks, reads the answer, thinks, and asks again."""

from __future__ import annotations

from random import Random

from tokenswarm.prompts import Material
from tokenswarm.records import SessionEnd
from tokenswarm.scenario import ChatTraffic
from tokenswarm.tokens import PARAGRAPH
from tokenswarm.traffic.session import Answer, Heard
from tokenswarm.traffic.turn import Turn


class ChatSession:
    """Turns of one session. All chance comes from ``rng`` and none of it depends on the model's answers."""

    keeps_answers = True

    def __init__(
        self,
        traffic: ChatTraffic,
        material: Material,
        rng: Random,
        ordinal: int | None = None,
        text_rng: Random | None = None,
    ) -> None:
        """``ordinal``: number of this session among those of its class, for prompts from a file. ``text_rng``
        chooses the words, where they are to differ between runs while all lengths and pauses stay the same."""
        self._traffic = traffic
        self._material = material
        self._rng = rng
        self._text_rng = text_rng or rng
        self._conversation = material.conversation(rng, ordinal)
        self._turns = traffic.turns.sample_int(rng) if self._conversation is None else len(self._conversation.users)
        self._played = 0
        own_system = None if self._conversation is None else self._conversation.system
        self._system = traffic.system_prompt if own_system is None else own_system
        self._prefix_tokens = None if own_system is not None or not self._system else material.system_tokens
        self._messages = [{"role": "system", "content": self._system}] if self._system else []
        self._text = self._system + PARAGRAPH if self._system else ""

    def next(self) -> Turn | None:
        if self._played >= self._turns:
            return None
        turn = self._turn(self._played == 0)
        self._played += 1
        return turn

    def hear(self, answer: Answer) -> Heard:
        self._messages.append({"role": "assistant", "content": answer.text})
        self._text += answer.text + PARAGRAPH
        return Heard(end=SessionEnd.DONE if self._played >= self._turns else None)

    def _turn(self, first: bool) -> Turn:
        rng, traffic, material = self._rng, self._traffic, self._material
        max_tokens = traffic.output_tokens.sample_int(rng)
        pause_s = 0.0 if first else traffic.think_time_s.sample(rng)
        prompt: str | list[int] | None = None
        messages: list[dict[str, str]] | None = None
        asked: int | None
        if material.sends_ids:
            asked = traffic.input_tokens.sample_int(rng)
            prompt = material.counter.make_ids(self._text_rng, asked)
        else:
            text, asked = self._message(first)
            if material.api == "completions":
                self._text += text
                prompt = self._text
            else:
                self._messages.append({"role": "user", "content": text})
                messages = self._messages.copy()
        return Turn(
            messages=messages,
            prompt=prompt,
            max_tokens=max_tokens,
            input_tokens=asked,
            pause_s=pause_s,
            ignore_eos=traffic.ignore_eos,
            prefix=None if self._prefix_tokens is None else "system",
            prefix_tokens=self._prefix_tokens,
        )

    def _message(self, first: bool) -> tuple[str, int | None]:
        if self._conversation is not None:
            return self._conversation.users[self._played], None
        asked = self._traffic.input_tokens.sample_int(self._rng)
        return self._material.message(self._text_rng, asked, first=first)
