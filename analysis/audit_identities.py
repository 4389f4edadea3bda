"""Rules that tie throughput, latency and load together. Each takes a figure set and gives the concerns it raises.

Tolerances come on top of the rounding of the printed digits, which is carried through every formula. docs/audit.md
says where they come from.
"""

from __future__ import annotations

import math

from analysis.audit_concern import Concern, Kind
from analysis.audit_set import FigureSet
from analysis.audit_span import Span, exact

# A formula for one request is used with means (or medians) over unequal requests.
UNEQUAL = 0.05
# Users of a level in place of the requests that were in flight: the load falls at the end of a drained level.
DRAIN = 0.05
# Tokens of other requests than the measured ones (with tail: fill) may come so much faster or slower.
FILL = 0.25
# Both sides count the same things.
SAME = 0.01
LONG_TAIL = 5.0  # p95 / p50 of TTFT from which a stall or a queue is the first thing to look for


def throughput_against_tpot(one: FigureSet) -> list[Concern]:
    """Throughput ~ streams x n / (TTFT + (n - 1) x TPOT + think), on means, or on medians where only those are told.

    A TTFT that is not told lies between 0 and what the last of the streams waits where all prompts come at once.
    """
    rate, streams = one.span("output_tok_s"), _streams(one)
    if rate is None or streams is None or rate.value <= 0 or not _of_the_same(one):
        return []
    users, allowance = streams
    implied = _implied(one, users)
    if implied is None:
        return []
    slow = rate.below(implied, UNEQUAL + allowance) and not _unsuccessful(one)
    if not slow and not implied.below(rate, UNEQUAL + _upward(one, allowance)):
        return []
    share = rate.value / implied.value - 1.0
    basis = "means" if one.central("tpot") is None or one.span("tpot_mean_s") else "medians"
    text = (
        f"{rate.value:.1f} tok/s is {abs(share):.0%} {'below' if slow else 'above'} the {implied.value:.1f} tok/s that "
        f"the {basis} of TTFT and TPOT imply"
    )
    cause, step = _why_slow(one) if slow else _WHY_FAST
    return [Concern(Kind.TPOT, one.names, text, cause, step, rate.value, implied.value, "tok/s")]


def _implied(one: FigureSet, users: Span) -> Span | None:
    """Throughput by latencies. Where nothing tells how many tokens a request has, no more than one token a TPOT."""
    tokens, decode, tpot = _tokens(one), _decode(one), one.central("tpot")
    if tokens is not None and decode is not None:
        return users * tokens / (_ttft(one) + decode + _think(one))
    if tpot is None or tpot[0].low <= 0:
        return None
    most = users / tpot[0]
    return Span(most.value, 0.0, most.high)


_WHY_FAST = (
    "tokens of other requests (warm-up, failed ones) in the throughput, more streams than the level is named after, or "
    "a TPOT of another run",
    "take tokens, time and TPOT from the same requests",
)


def littles_law(one: FigureSet) -> list[Concern]:
    """Mean in flight = rate x mean E2E. Where requests failed, their time in flight is in the left side only."""
    e2e, rate, streams = one.central("e2e"), _rate(one), _streams(one)
    if e2e is None or rate is None or streams is None or rate.value <= 0 or not _of_the_same(one):
        return []
    in_flight, allowance = streams
    told = rate * (e2e[0] + _think(one))
    many = in_flight.below(told, UNEQUAL + _upward(one, allowance))
    few = told.below(in_flight, UNEQUAL + allowance) and not _unsuccessful(one)
    if not many and not few:
        return []
    text = (
        f"{rate.value:.3g} requests/s x {e2e[0].value:.3g} s (E2E {e2e[1]}) are {told.value:.3g} in flight, "
        f"not {in_flight.value:.3g}"
    )
    cause = "requests in the rate that are not in E2E" if many else "think time, a slow start, or time between requests"
    step = "compare the number of requests behind each figure, and the time that they are divided by"
    return [Concern(Kind.LITTLE, one.names, text, cause, step, told.value, in_flight.value, "requests in flight")]


def request_rate(one: FigureSet) -> list[Concern]:
    """Output tokens of a request / (E2E - TTFT), against what is told as tok/s of one request."""
    told, tokens = one.span("per_request_tok_s"), one.told_tokens
    ttft, e2e = one.central("ttft"), one.central("e2e")
    if told is None or tokens is None or ttft is None or e2e is None:
        return []
    if ttft[1] != e2e[1] or not _of_the_same(one):
        return []
    decode = e2e[0] - ttft[0]
    if decode.low <= 0 or told.agrees(wanted := tokens / decode, UNEQUAL):
        return []
    text = f"{told.value:.1f} tok/s of one request, but its tokens / (E2E - TTFT) are {wanted.value:.1f}"
    cause = "tokens / E2E, or 1 / TPOT of other requests, under this name"
    step = "say how it is computed, or compute it again from tokens, E2E and TTFT"
    return [Concern(Kind.PER_REQUEST, one.names, text, cause, step, told.value, wanted.value, "tok/s")]


def end_to_end(one: FigureSet) -> list[Concern]:
    """E2E ~ TTFT + (n - 1) x TPOT, with the output tokens that are told, else those that the other rows imply."""
    e2e, ttft, decode = one.central("e2e"), one.central("ttft"), _decode(one)
    tokens = one.told_tokens or _usual_tokens(one)
    if e2e is None or ttft is None or decode is None or tokens is None:
        return []
    if ttft[1] != e2e[1] or not _of_the_same(one):
        return []
    wanted = ttft[0] + _decode_of(one, tokens)
    if e2e[0].agrees(wanted, UNEQUAL):
        return []
    text = (
        f"E2E {e2e[1]} {e2e[0].value:.3g} s, but TTFT + (n - 1) x TPOT is {wanted.value:.3g} s "
        f"with n = {tokens.value:.0f} tokens"
    )
    cause = "other output lengths than believed, or one of the three is of other requests"
    step = "look up the output lengths of this row; take the three from the same requests"
    return [Concern(Kind.E2E, one.names, text, cause, step, e2e[0].value, wanted.value, "s")]


def _streams(one: FigureSet) -> tuple[Span, float] | None:
    """Requests in flight as measured, else the users of the level, and by which share either may be off."""
    if (measured := one.span("in_flight_mean")) is not None and measured.value > 0:
        return measured, _of_others(one)
    users = one.row.concurrency
    return (exact(users), DRAIN) if users and not one.row.by_clock else None


def _of_others(one: FigureSet) -> float:
    """What tokens of other requests than the measured ones may change: these are like those, as far as a sample tells.

    With a share s of others the mean over both is known to sqrt(s) of the interval of the measured ones' mean.
    """
    tokens, window, e2e = one.value("tokens"), one.value("window_tokens"), one.row.figure("e2e_mean_s")
    if not tokens or not window or tokens >= window:
        return 0.0
    share = 1.0 - tokens / window
    if not e2e.value or e2e.low is None or e2e.high is None:
        return 1.0
    return FILL * share + (e2e.high - e2e.low) / (2.0 * e2e.value) * math.sqrt(share)


def _upward(one: FigureSet, allowance: float) -> float:
    """Users bound the requests in flight from above."""
    return allowance if one.span("in_flight_mean") is not None else 0.0


def _think(one: FigureSet) -> Span:
    """Think or tool time before a request; in the cycle of a user, not in that of a request in flight."""
    measured = one.span("in_flight_mean") is not None
    return (one.span("pause_mean_s") or exact(0.0)) if not measured else exact(0.0)


def _rate(one: FigureSet) -> Span | None:
    """Requests per second: by their tokens where those are told, so that requests cut at the edges count in part."""
    tokens, output = one.told_tokens, one.span("output_tok_s")
    if tokens is not None and output is not None and tokens.low > 0:
        return output / tokens
    return one.span("requests_per_s")


def _unsuccessful(one: FigureSet) -> bool:
    return bool(one.count("failed") or one.row.cancelled)


def _of_the_same(one: FigureSet) -> bool:
    """Whether the figures rest on the same requests, as far as they tell: requests of one token have no TPOT."""
    names = (*(f"{latency}_mean_s" for latency in ("ttft", "tpot", "e2e")), "output_tokens_mean")
    counts = [n for name in names if (n := one.row.figure(name).n) is not None]
    return not counts or min(counts) >= (1.0 - SAME) * max(counts)


def _usual_tokens(one: FigureSet) -> Span | None:
    """What the other rows tell, or what E2E, TTFT and TPOT of three rows or more imply together."""
    usual, document = one.document.usual_tokens, one.document
    known = usual is not None and (document.told_tokens or len(document.output_tokens) > 2)
    return exact(usual) if usual is not None and known else None


def _tokens(one: FigureSet) -> Span | None:
    """Output tokens of a request; ``None`` where nothing tells."""
    if (told := one.told_tokens) is not None:
        return told
    implied = one.implied_tokens or one.document.usual_tokens or one.value("asked_output_tokens_mean")
    return None if implied is None else exact(implied)


def _decode(one: FigureSet) -> Span | None:
    """Seconds from the first to the last token of a request; ``None`` where nothing tells."""
    tokens = _tokens(one)
    if tokens is None or (one.central("tpot") is None and one.span("per_request_tok_s") is None):
        return None
    return _decode_of(one, tokens)


def _decode_of(one: FigureSet, tokens: Span) -> Span:
    """By tok/s of one request where it is told: requests of unequal lengths weigh there as they do in throughput."""
    told, tpot = one.span("per_request_tok_s"), one.central("tpot")
    if told is not None and told.low > 0:
        return tokens / told
    assert tpot is not None
    return Span(*(max(0.0, n - 1.0) * each for n, each in zip(_ends(tokens), _ends(tpot[0]), strict=True)))


def _ends(span: Span) -> tuple[float, float, float]:
    return span.value, span.low, span.high


def _ttft(one: FigureSet) -> Span:
    """Where it is not told: from nothing to the mean wait of ``c`` prompts that are computed one after another, each
    in the time of a lone one, and most likely what other rows have; without any to go by, anything."""
    if (told := one.central("ttft")) is not None:
        return told[0]
    lone, users = one.document.lone_ttft_s, one.row.concurrency
    if lone is None or users is None:
        return Span(0.0, 0.0, float("inf"))
    likely = one.document.ttft_s.get(users, lone)
    return Span(likely, 0.0, max(likely, lone * (users + 1) / 2.0))


def _why_slow(one: FigureSet) -> tuple[str, str]:
    p50, p95 = one.value("ttft_p50_s"), one.value("ttft_p95_s")
    if p50 and p95 and p95 > LONG_TAIL * p50:
        cause = (
            f"a stall of about {p95 - p50:.1f} s at the first token of some requests (TTFT p95 is {p95 / p50:.0f} "
            "times p50), which medians do not see: a first wave on a cold engine, or a queue"
        )
        return (
            cause,
            "look at the TTFT of each request in the order of sending; warm up at this concurrency; run it again",
        )
    cause = "a stall or a queue that medians do not see, failed requests, a long end with few streams, or short answers"
    return cause, "ask for TTFT, time and tokens of this row; run it again with more requests"
