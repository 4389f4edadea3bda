"""What the simulated model answers a request: reasoning, tool calls, words; the same for the same prompt and seed."""

from __future__ import annotations

import random

from simulator import tokenizer
from simulator.answers import Answers, natural_length
from simulator.api import Ask
from simulator.arguments import arguments_text
from simulator.reply import Call, Reply
from simulator.settings import Settings
from simulator.tools import Choice, Tool

_MOST_AT_ONCE = 3


class Replies:
    """Composes replies under one preset and seed."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self._settings = settings
        self._seed = seed
        self._answers = Answers(settings.natural_length, seed)

    def reply(self, ask: Ask) -> Reply:
        """Reasoning if the model thinks, then calls if it calls, then words as far as they are needed."""
        parses = self._settings.reasoning is not None and ask.api == "chat"
        field = self._settings.reasoning_field if parses else None
        reply = Reply(reasoning_field=field, hides_reasoning=ask.hides_reasoning)
        if ask.thinks or ask.choice.how != "none":
            rng = random.Random(f"reply {hash((self._seed, ask.seed or 0, *ask.prompt))}")
            self._think(reply, ask, rng)
            for call in self._calls(ask, rng):
                reply.add("call", tokenizer.encode(f"{tokenizer.call_word(call.name)} {call.arguments}"), call)
        self._end(reply, ask)
        reply.cut(ask.limit)
        return reply

    def _think(self, reply: Reply, ask: Ask, rng: random.Random) -> None:
        if not ask.thinks or self._settings.reasoning is None:
            return
        count = natural_length(self._settings.reasoning, rng)
        if ask.thinking_budget is not None:
            count = min(count, max(0, ask.thinking_budget - 1))  # its end is part of the budget, as in vLLM
        seed = 1 + (ask.seed or 0)
        words, _ = self._answers.compose(ask.prompt, min(count, ask.limit), ignore_eos=True, seed=seed)
        reply.add_reasoning(words)

    # -- calls -----------------------------------------------------------------------------------------------------

    def _calls(self, ask: Ask, rng: random.Random) -> list[Call]:
        settings, choice = self._settings, ask.choice
        if not self._wants_to_call(ask, rng):
            return []
        several = choice.parallel and rng.random() < settings.parallel_call_share
        count = rng.randint(2, _MOST_AT_ONCE) if several else 1
        return [self._call(rng.choice(choice.tools), index, rng) for index in range(count)]

    def _wants_to_call(self, ask: Ask, rng: random.Random) -> bool:
        match ask.choice:
            case Choice("none"):
                return False
            case Choice("auto"):
                tired = ask.tool_results >= self._settings.tool_results_limit
                return rng.random() < self._settings.tool_call_share and not tired
            case _:
                return True

    def _call(self, tool: Tool, index: int, rng: random.Random) -> Call:
        text = arguments_text(tool.parameters, rng)
        if rng.random() < self._settings.malformed_call_share:
            text = text[: rng.randint(1, len(text) - 1)].rstrip()  # the beginning of an object is no JSON
        return Call(f"chatcmpl-tool-{rng.getrandbits(64):016x}", tool.name, index, tuple(tokenizer.pieces(text)))

    # -- end -------------------------------------------------------------------------------------------------------

    def _end(self, reply: Reply, ask: Ask) -> None:
        """After calls the model stops as soon as it may, otherwise it says some words."""
        made = len(reply.tokens)
        left = ask.limit - made
        if left <= 0:
            return
        if reply.calls:
            filling = left if ask.ignore_eos else ask.least - made
            if filling > 0:
                reply.add("content", self._answers.compose(ask.prompt, filling, ignore_eos=True, seed=ask.seed)[0])
            else:
                reply.add("silent", [tokenizer.END])
            if filling < left:
                reply.finish_reason = "stop" if ask.choice.how == "named" else "tool_calls"
        else:
            words, reply.finish_reason = self._answers.compose(
                ask.prompt, left, least=max(0, ask.least - made), ignore_eos=ask.ignore_eos, seed=ask.seed
            )
            reply.add("content", words)
