"""Finds out before any load whether a server takes an agent's requests, and what its first prompts cost there."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import msgspec

from tokenswarm.agent_files import Opening
from tokenswarm.counting import Approximate, Counting, Prompt, Server
from tokenswarm.errors import TargetError
from tokenswarm.survey import first_difference
from tokenswarm.tokenize_api import UsageCounting
from tokenswarm.tokens import OpeningCosts, TokenCounter, behind_nonce

MOST_OPENINGS = 8  # measured of one class
_SAMPLE = 64  # tokens of the system text that stands for a longer one
_CHECKED = ((40, 200), (100, 33), (61, 7), (7, 90))  # tokens of system text and task in generated first prompts
_NONCES = 8  # counted at the head of each kind of first prompt
_INEXACT = "tokens of the first prompts of {} are not the sum of their parts"
_REFUSED = re.compile(r" answered (400|404|405|413|422|500|501):")
_OTHER_CHOICES = (("required", "a call at every step but the last"), ("none", "no calls"))
_FLAGS = (
    ("jinja", "start llama.cpp's server with --jinja"),
    ("--tool-call-parser", "start vLLM with --enable-auto-tool-choice --tool-call-parser NAME"),
    ("unsupported param", "use a newer llama.cpp, with --jinja"),
)


def first_prompt(system: str | None, task: str) -> list[dict[str, Any]]:
    """The messages of a job's first model call."""
    head = [] if system is None else [{"role": "system", "content": system}]
    return [*head, {"role": "user", "content": task}]


def require_tools(server: Server, name: str, opening: Opening, counter: TokenCounter) -> int | None:
    """Send one request with the tools of ``name``'s jobs, for one token; its prompt tokens as the server tells them.

    Raises ``TargetError`` where the server takes the same request without tools and not with them. Any other failure
    is left to the load: then None comes back, as from a server that sends no usage.
    """
    prompt = sample(opening, counter)
    for _ in range(2):  # some servers fail once
        try:
            return UsageCounting(server.with_fields(opening.offer)).told(prompt)
        except TargetError as error:
            refusal = str(error)
    if _REFUSED.search(refusal) and _takes(server, prompt):
        raise TargetError(_advice(server, name, opening, prompt, refusal))
    return None


def _takes(server: Server, prompt: Prompt) -> bool:
    try:
        UsageCounting(server).told(prompt)
    except TargetError:
        return False
    return True


def _advice(server: Server, name: str, opening: Opening, prompt: Prompt, refusal: str) -> str:
    """One line: what was refused, the flag to set, and what the server would take instead."""
    flag = next((flag for words, flag in _FLAGS if words in refusal.lower()), "start it with tool calling enabled")
    choice = opening.tool_choice
    wanted = choice if isinstance(choice, str) else choice["function"]["name"]
    others = [
        f"{other} ({meaning})"
        for other, meaning in _OTHER_CHOICES
        if other != wanted and _takes(server.with_fields({**opening.offer, "tool_choice": other}), prompt)
    ]
    return (
        f"traffic {name!r}: the server does not take tools with tool_choice: {wanted} ({refusal}); {flag}"
        f"{', or set tool_choice: ' if others else ''}{' or '.join(others)}"
    )


def with_openings(
    server: Server, counting: Counting, counter: TokenCounter, name: str, openings: list[Opening]
) -> TokenCounter:
    """``counter`` with what the openings of the class ``name`` cost.

    Only the first ones of many are measured. Raises ``TargetError`` where the server does not take their tools.
    """
    measured: list[OpeningCosts] = []
    for opening in openings[:MOST_OPENINGS]:
        told = require_tools(server, name, opening, counter)
        try:
            costs, adds_up = survey_opening(counting, opening, counter, told)
        except TargetError as error:
            costs, adds_up = survey_opening(Approximate(), opening, counter, told)
            counter = msgspec.structs.replace(counter, exact=False, note=str(error))
        if counter.exact and not adds_up:
            counter = msgspec.structs.replace(counter, exact=False, note=_INEXACT.format(name))
        measured.append(costs)
    return msgspec.structs.replace(counter, openings={**counter.openings, name: measured})


def with_nonce(counter: TokenCounter, firsts: list[tuple[Counting, Prompt]]) -> TokenCounter:
    """``counter`` with the tokens that a nonce adds to these first prompts, each with its way to be counted, and with
    those that stand before it: chat templates may put tools there."""
    nonces = [counter.make_nonce(Random(seed)) for seed in range(_NONCES)]
    costs: set[int] = set()
    before: list[int | None] = []
    try:
        for counting, prompt in firsts:
            bare = counting.count(prompt)
            costs |= {counting.count(behind_nonce(nonce, prompt)) - bare for nonce in nonces}
            before.append(first_difference(counting, *(behind_nonce(nonce, prompt) for nonce in nonces[:2])))
    except TargetError as error:
        counter = msgspec.structs.replace(counter, exact=False, note=str(error))
    if len(costs) > 1 and counter.exact:
        note = f"the nonce that keeps cold prompts apart costs {min(costs)} to {max(costs)} tokens"
        counter = msgspec.structs.replace(counter, exact=False, note=note)
    overheads = [one.overhead for costs in counter.openings.values() for one in costs]
    known = [tokens for tokens in before if tokens is not None] if None not in before else overheads
    return msgspec.structs.replace(
        counter, nonce_tokens=max(costs, default=0), before_nonce=max(known, default=counter.template_prefix)
    )


def survey_opening(
    counting: Counting, opening: Opening, counter: TokenCounter, told: int | None = None
) -> tuple[OpeningCosts, bool]:
    """What an opening costs, and whether generated first prompts counted as computed. May raise ``TargetError``.

    ``told``: prompt tokens of the sample as an answer told them; where the count is another one, they hold.
    """
    offering = counting.with_fields(opening.offer)
    counted = offering.count(sample(opening, counter))
    overhead = counted - _sample_tokens(opening) - 1
    added = 0 if told is None else told - counted
    shared = _shared(offering, opening, counter)
    if shared is None:
        shared = _least_shared(counting, opening, counter)
    costs = OpeningCosts(
        overhead=overhead + added,
        shared=None if shared is None else max(0, shared + min(0, added)),
        common=_common(offering, opening, counter),
    )
    return costs, _adds_up(offering, opening, counter, overhead)


def _sample_tokens(opening: Opening) -> int:
    return min(opening.tokens, _SAMPLE)


def sample(opening: Opening, counter: TokenCounter, system: int = 0, task: int = 0) -> Prompt:
    """A short first prompt: a task of one token; ``system`` and ``task`` choose the words they begin with."""
    text, length, heads = opening.system, _sample_tokens(opening), counter.heads
    if length:
        rest = counter.make_text(Random(0), length, stop=False).partition(" ")
        text = heads[system % len(heads)] + "".join(rest[1:])
    return first_prompt(text, heads[task % len(heads)])


def _shared(offering: Counting, opening: Opening, counter: TokenCounter) -> int | None:
    """Leading tokens of two prompts that differ in the task alone; None where no ids can be had."""
    if len(counter.heads) < 2:
        return None
    found = first_difference(offering, sample(opening, counter), sample(opening, counter, task=1))
    return None if found is None else found - _sample_tokens(opening) + opening.tokens


def _common(offering: Counting, opening: Opening, counter: TokenCounter) -> int | None:
    """Leading tokens of two prompts that differ in their generated system texts; None where there are none."""
    if not opening.tokens or len(counter.heads) < 2:
        return None
    return first_difference(offering, sample(opening, counter), sample(opening, counter, system=1, task=1))


def _least_shared(counting: Counting, opening: Opening, counter: TokenCounter) -> int | None:
    """Leading tokens that are shared for certain: those of the system message. Tools may stand behind the task."""
    if counting.source == "approximate" or (not opening.tokens and opening.system is None):
        return opening.tokens or None
    around = counting.count(sample(opening, counter)) - counter.overhead - 1 - _sample_tokens(opening)
    return opening.tokens + max(0, around)


def _adds_up(offering: Counting, opening: Opening, counter: TokenCounter, overhead: int) -> bool:
    for system, task in _CHECKED:
        text, length = opening.system, 0
        if opening.tokens:
            text, length = counter.make_text(Random(system), system, stop=False), system
        prompt = first_prompt(text, counter.make_text(Random(task), task))
        if offering.count(prompt) != overhead + length + task:
            return False
    return True
