"""Whether a run's first prompts fit into the context that the server has for one request, told before any load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

from tokenswarm.agent_files import AgentFiles
from tokenswarm.agent_survey import MOST_OPENINGS, first_prompt
from tokenswarm.cached_tokens import Prober, stated_context
from tokenswarm.errors import TargetError
from tokenswarm.scenario import AgenticTraffic, AnyTraffic, ChatTraffic, TraceTraffic
from tokenswarm.tokens import TokenCounter
from tokenswarm.trace import TraceSession

_WORTH_TRYING = 500  # tokens of system text; shorter prompts have been sent already
_UNSURE = 0.8  # share of a length that is certain where tokens are not counted exactly


def require_room(classes: Sequence[AnyTraffic], counter: TokenCounter, listed: dict[str, Any], server: Prober) -> None:
    """Raise ``TargetError`` where even the shortest first prompt of a class is too long for this server.

    ``listed``: what the server's model list says of the model. Where that does not tell the context, one long first
    prompt of each class of agents is sent. Nothing is refused where the length of a prompt is not known before it is
    made. llama.cpp cuts answers that have no room; other servers refuse the request.
    """
    context = stated_context(listed)
    for traffic in classes:
        if context is None:
            _try(traffic, counter, server)
            continue
        prompt = _least_prompt(traffic, counter)
        answer = 1 if "max_model_len" not in listed else _least_answer(traffic)
        if prompt is not None and prompt * (1.0 if counter.exact else _UNSURE) + answer > context:
            raise TargetError(
                f"traffic {traffic.name!r}: a first prompt has at least {prompt} tokens, its answer {answer}, but the "
                f"server's context has {context} tokens; ask for less, or serve the model with a longer context"
            )


def require_room_for_trace(sessions: Sequence[TraceSession], listed: dict[str, Any]) -> str | None:
    """One line where some of a trace's sessions are too long for this server; they are sent all the same, and fail.

    Raises ``TargetError`` where all of them are. Nothing is said where the model list does not tell the context.
    """
    context = stated_context(listed)
    if context is None:
        return None
    longest = [_longest(session) for session in sessions]
    too_long = sum(tokens > context for tokens in longest)
    if too_long == len(longest):
        raise TargetError(
            f"load.replay: all {too_long} sessions are longer than the server's context of {context} tokens, the "
            f"shortest has {min(longest)}; filter by input_tokens, or serve the model with a longer context"
        )
    if not too_long:
        return None
    return (
        f"{too_long} of {len(longest)} sessions of the trace are longer than the server's context of {context} tokens"
    )


def _longest(session: TraceSession) -> int:
    """Tokens of the session's last prompt and its answer."""
    return sum(turn.input_tokens + turn.output_tokens for turn in session.turns)


def _try(traffic: AnyTraffic, counter: TokenCounter, server: Prober) -> None:
    """Send a first prompt with generated system text as long as all jobs have; a server that is slow or busy may be
    right for the load all the same."""
    if not isinstance(traffic, AgenticTraffic) or traffic.first_tokens < _WORTH_TRYING:
        return
    opening = AgentFiles(traffic).openings[0]
    system = counter.make_text(Random(0), opening.tokens, stop=False)
    prompt = {"model": server.model, "messages": first_prompt(system, counter.heads[0])}
    try:
        reply = server.post({**prompt, **opening.offer, **server.request, "max_tokens": 1, "stream": False})
    except TargetError:
        return
    if reply.status in (400, 413, 422):
        raise TargetError(
            f"traffic {traffic.name!r}: the server does not take a first prompt with a system prompt of "
            f"{opening.tokens} tokens: it answered {reply.status}: {reply.words}"
        )


def _least_prompt(traffic: AnyTraffic, counter: TokenCounter) -> int | None:
    """Tokens of the shortest first prompt; None where it is not known."""
    match traffic:
        case AgenticTraffic():
            costs = counter.openings.get(traffic.name, [])
            if not costs or len(costs) >= MOST_OPENINGS:  # there may be further ones, that were not measured
                return None
            task = 1 if traffic.trajectories is not None else _least(traffic.task_tokens.lowest)
            return min(one.overhead for one in costs) + traffic.first_tokens + task
        case ChatTraffic(prompts=str()):
            overhead = counter.prompt_overhead(traffic.system_prompt)
            return max(_least(traffic.input_tokens.lowest), overhead + 1)
    return None


def _least_answer(traffic: AnyTraffic) -> int:
    if isinstance(traffic, TraceTraffic) or (isinstance(traffic, AgenticTraffic) and traffic.trajectories is not None):
        return 1  # what is recorded decides
    return _least(traffic.output_tokens.lowest)


def _least(value: float) -> int:
    return max(1, math.ceil(value))
