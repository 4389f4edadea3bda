"""The material of one class of traffic, and the source of chance for one session."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from random import Random

from tokenswarm.agent_files import AgentFiles
from tokenswarm.agent_survey import MOST_OPENINGS, first_prompt, sample, with_nonce, with_openings
from tokenswarm.counting import Approximate, Prompt, Server
from tokenswarm.errors import InputError
from tokenswarm.promptfile import Conversation, read_prompts
from tokenswarm.scenario import AgenticTraffic, CaptioningTraffic, ChatTraffic, Scenario
from tokenswarm.survey import survey_with
from tokenswarm.tokenize_api import find_counting
from tokenswarm.tokens import PARAGRAPH, TokenCounter


def session_rng(seed: int, level: int | None, phase: str, ticket: int, run: str = "") -> Random:
    """The same numbers for the same ticket in every process and on every machine; different ones for every other.

    ``run`` makes them differ from run to run as well.
    """
    name = f"{seed}/{level}/{phase}/{ticket}/{run}".encode()
    return Random(int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "big"))


class Material:
    """Makes the user messages of one class. Small and quick: no request, no file access once it exists.

    ``reused`` counts the sessions that got a conversation of the file which had been used up.
    """

    def __init__(self, traffic: ChatTraffic, counter: TokenCounter, *, seed: int = 7, api: str = "chat") -> None:
        """Reads a prompt file where one is named; raises ``InputError`` or ``ScenarioError`` where it is unusable."""
        self.counter = counter
        self.api = api
        self.system = traffic.system_prompt
        self.random = traffic.prompts == "random_ids"
        self.sends_ids = self.random and api == "completions" and traffic.turns.highest == 1 and not self.system
        if self.random and not (counter.token_ids if self.sends_ids else counter.random_words):
            raise InputError(
                f"traffic {traffic.name!r}: prompts: random_ids needs target.tokenizer (a local tokenizer) or a server "
                f"with /tokenize and /detokenize; tokens are {counter.source} here"
            )
        self.conversations: list[Conversation] = []
        self.skipped = 0
        self.reused = 0
        self._used: set[int] = set()
        if not isinstance(traffic.prompts, str):
            self.conversations, self.skipped = read_prompts(traffic.prompts.file)
            Random(f"{seed}/{traffic.name}").shuffle(self.conversations)

    def conversation(self, rng: Random, ordinal: int | None) -> Conversation | None:
        """The file's conversation for the session that is the ``ordinal``-th of its class in the run, from 0.

        Without an ordinal one is drawn, so that it may come twice. None where there is no file.
        """
        if not self.conversations:
            return None
        have = len(self.conversations)
        index = rng.randrange(have) if ordinal is None else ordinal % have
        self.reused += index in self._used if ordinal is None else ordinal >= have
        self._used.add(index)
        return self.conversations[index]

    @property
    def system_tokens(self) -> int | None:
        """Tokens that prompts with this class' system prompt begin with, never too many; None without one."""
        if self.system is None:
            return None
        counter = self.counter
        measured = counter.system_prefixes.get(self.system)
        return counter.system_overheads[self.system] - counter.overhead if measured is None else measured

    def shortage(self, sessions: int) -> str | None:
        """One line where the file has fewer conversations than ``sessions`` of this class would need."""
        have = len(self.conversations)
        if not have or sessions <= have:
            return None
        return f"the prompt file has {have} conversations for {sessions} sessions: some repeat and may hit a cache"

    def message(self, rng: Random, asked_tokens: int, *, first: bool) -> tuple[str, int]:
        """A user message for a prompt (later turn: an addition) of ``asked_tokens``, and the tokens it really makes.

        They differ only where fewer are asked for than the chat template and one word need.
        """
        counter = self.counter
        overhead = counter.prompt_overhead(self.system) if first else counter.pair_overhead
        tokens = max(1, asked_tokens - overhead)
        make = counter.make_random_text if self.random else counter.make_text
        return make(rng, tokens), overhead + tokens


def survey_scenario(scenario: Scenario, server: Server, kind: str | None = None) -> TokenCounter:
    """What the materials need to know about the server, for all classes of ``scenario`` that are of ``kind``.

    Raises ``TargetError`` where the server does not take the tools of a class, ``InputError`` where a file is wrong.
    """
    played = [traffic for traffic in scenario.traffic if kind in (None, traffic.kind)]
    chats = [traffic for traffic in played if isinstance(traffic, ChatTraffic)]
    agents = [(traffic.name, AgentFiles(traffic)) for traffic in played if isinstance(traffic, AgenticTraffic)]
    generated = [traffic for traffic in chats if isinstance(traffic.prompts, str)]
    counting, note = find_counting(server, scenario.target.api, scenario.target.tokenizer)
    counter = survey_with(
        counting,
        note,
        api=scenario.target.api,
        systems=[traffic.system_prompt for traffic in generated if traffic.system_prompt is not None],
        random=any(traffic.prompts == "random_ids" for traffic in generated),
    )
    if counter.source != counting.source:
        counting = Approximate()
    for name, files in agents:
        counter = with_openings(server, counting, counter, name, files.openings)
    if scenario.prefix_cache is None:
        return counter
    asked = [traffic for traffic in played if isinstance(traffic, ChatTraffic | CaptioningTraffic)]
    firsts = [(counting, prompt) for prompt in _first_prompts(asked, counter, scenario.target.api)]
    for _, files in agents:
        firsts += [
            (counting.with_fields(opening.offer), sample(opening, counter))
            for opening in files.openings[:MOST_OPENINGS]
        ]
    return with_nonce(counter, firsts)


def _first_prompts(asked: Sequence[ChatTraffic | CaptioningTraffic], counter: TokenCounter, api: str) -> list[Prompt]:
    """A short first prompt with each system prompt of the classes ``asked``, or without one."""
    head = counter.heads[0]
    systems = dict.fromkeys(traffic.system_prompt for traffic in asked)
    if api == "completions":
        return [f"{system}{PARAGRAPH}{head}" if system else head for system in systems]
    return [first_prompt(system, head) for system in systems]
