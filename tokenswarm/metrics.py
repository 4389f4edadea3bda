"""Every metric of one request: the only place where TTFT, TPOT and the rest are defined.

A formula is written once and serves a single record (numbers) and a table of records (columns) alike;
``docs/metrics.md`` is tested against ``METRICS``. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Metric:
    """One derived figure.

    ``needs`` names the facts without which the metric is blank; ``holds`` a further condition on them;
    ``compute`` takes anything with those attributes: a ``RequestRecord`` or a pandas frame of them.
    """

    name: str
    unit: Literal["s", "tok/s", "tokens"]
    better: Literal["lower", "higher"]
    formula: str
    needs: tuple[str, ...]
    compute: Callable[[Any], Any]
    holds: Callable[[Any], Any] | None = None

    def of(self, record: Any) -> float | None:
        """The value for one record, ``None`` where it is not defined."""
        if any(getattr(record, fact) is None for fact in self.needs):
            return None
        if self.holds is not None and not self.holds(record):
            return None
        return float(self.compute(record))


def _several_tokens_over_time(r: Any) -> Any:
    return (r.output_tokens >= 2) & (r.last_token_s > r.first_token_s)


_LIST = (
    Metric(
        name="ttft_s",
        unit="s",
        better="lower",
        formula="first_token_s − sent_s",
        needs=("first_token_s", "sent_s"),
        compute=lambda r: r.first_token_s - r.sent_s,
    ),
    Metric(
        name="ttfo_s",
        unit="s",
        better="lower",
        formula="first_output_s − sent_s",
        needs=("first_output_s", "sent_s"),
        compute=lambda r: r.first_output_s - r.sent_s,
    ),
    Metric(
        name="tpot_s",
        unit="s",
        better="lower",
        formula="(last_token_s − first_token_s) / (output_tokens − 1)",
        needs=("last_token_s", "first_token_s", "output_tokens"),
        compute=lambda r: (r.last_token_s - r.first_token_s) / (r.output_tokens - 1),
        holds=_several_tokens_over_time,
    ),
    Metric(
        name="e2e_s",
        unit="s",
        better="lower",
        formula="last_token_s − sent_s",
        needs=("last_token_s", "sent_s"),
        compute=lambda r: r.last_token_s - r.sent_s,
    ),
    Metric(
        name="scheduled_ttft_s",
        unit="s",
        better="lower",
        formula="first_token_s − scheduled_s",
        needs=("first_token_s", "scheduled_s"),
        compute=lambda r: r.first_token_s - r.scheduled_s,
    ),
    Metric(
        name="scheduled_e2e_s",
        unit="s",
        better="lower",
        formula="last_token_s − scheduled_s",
        needs=("last_token_s", "scheduled_s"),
        compute=lambda r: r.last_token_s - r.scheduled_s,
    ),
    Metric(
        name="send_delay_s",
        unit="s",
        better="lower",
        formula="sent_s − scheduled_s",
        needs=("sent_s", "scheduled_s"),
        compute=lambda r: r.sent_s - r.scheduled_s,
    ),
    Metric(
        name="request_tok_s",
        unit="tok/s",
        better="higher",
        formula="output_tokens / (last_token_s − first_token_s)",
        needs=("output_tokens", "last_token_s", "first_token_s"),
        compute=lambda r: r.output_tokens / (r.last_token_s - r.first_token_s),
        holds=_several_tokens_over_time,
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _LIST}


def tokens_in_window(first_s: float, last_s: float, tokens: float, start_s: float, end_s: float) -> float:
    """Tokens of one request that arrived between two moments.

    The first token counts at ``first_s``; the others are taken as spread evenly up to ``last_s``.
    """
    if tokens <= 0:
        return 0.0
    first = 1.0 if start_s <= first_s <= end_s else 0.0
    if tokens == 1 or last_s <= first_s:
        return float(tokens) if first else 0.0
    overlap = min(last_s, end_s) - max(first_s, start_s)
    return first + (tokens - 1) * max(0.0, overlap) / (last_s - first_s)
