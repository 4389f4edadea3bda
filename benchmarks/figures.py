"""What the client reports held against what the server recorded. Pure: rows in, figures out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.server import TruthRow
from tokenswarm.quantiles import quantile

Row = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """One request as the client reports it; seconds of the same monotonic clock as the server's."""

    request_id: str
    sent_s: float
    first_token_s: float
    last_token_s: float
    output_tokens: int | None
    reads: int | None
    merged_reads: int | None
    lag_max_s: float | None


def seen(rows: Iterable[dict[str, str]]) -> list[Seen]:
    """The measured, successful requests of a ``requests.csv``."""
    return [
        Seen(
            request_id=row["request_id"],
            sent_s=float(row["sent_s"]),
            first_token_s=float(row["first_token_s"]),
            last_token_s=float(row["last_token_s"]),
            output_tokens=int(row["output_tokens"]) if row["output_tokens"] else None,
            reads=int(row["reads"]) if row["reads"] else None,
            merged_reads=int(row["merged_reads"]) if row["merged_reads"] else None,
            lag_max_s=float(row["lag_max_s"]) if row["lag_max_s"] else None,
        )
        for row in rows
        if row["phase"] == "measured" and not row["error_kind"]
    ]


def _ms(values: Sequence[float], q: float) -> float | None:
    value = quantile(values, q)
    return None if value is None else value * 1e3


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def compare(client: Sequence[Seen], server: Sequence[TruthRow]) -> Row:
    """Times of the client against the server's own, over the requests both know.

    ``lag``: arrival stamp − send stamp of the first and the last token. ``ttft_error``: of each request, client's TTFT
    − server's (from the kernel's receive stamp of the request to the send of the first token); ``ttft_p95_error_ms``:
    difference of the two reported percentiles, the figure that other tools are compared by. ``tpot_error``: relative,
    without sign. ``late``: how far the server itself missed its deadlines. Milliseconds; ``None`` without requests.
    """
    truth = {row.request_id: row for row in server if row.first_token_ns is not None}
    pairs = [(mine, truth[mine.request_id]) for mine in client if mine.request_id in truth]
    first_lag: list[float] = []
    last_lag: list[float] = []
    ttft: list[float] = []
    true_ttft: list[float] = []
    tpot_error: list[float] = []
    for mine, true in pairs:
        first_s, last_s = true.first_token_ns * 1e-9, true.last_token_ns * 1e-9  # type: ignore[operator]
        first_lag.append(mine.first_token_s - first_s)
        last_lag.append(mine.last_token_s - last_s)
        ttft.append(mine.first_token_s - mine.sent_s)
        true_ttft.append(first_s - true.received_ns * 1e-9)
        if last_s > first_s:
            tpot_error.append(abs((mine.last_token_s - mine.first_token_s) / (last_s - first_s) - 1))
    error = [mine - true for mine, true in zip(ttft, true_ttft, strict=True)]
    lag = first_lag + last_lag
    reads = sum(mine.reads or 0 for mine in client)
    return {
        "requests": len(client),
        "known_to_server": len(pairs),
        "tokens_exact": all(mine.output_tokens == true.tokens for mine, true in pairs) if pairs else None,
        "first_lag_p95_ms": _ms(first_lag, 0.95),
        "lag_p50_ms": _ms(lag, 0.5),
        "lag_p95_ms": _ms(lag, 0.95),
        "lag_p99_ms": _ms(lag, 0.99),
        "own_lag_p95_ms": _ms([mine.lag_max_s for mine in client if mine.lag_max_s is not None], 0.95),
        "ttft_p50_ms": _ms(ttft, 0.5),
        "ttft_error_p50_ms": _ms(error, 0.5),
        "ttft_error_p95_ms": _ms(error, 0.95),
        "ttft_p95_error_ms": _difference(_ms(ttft, 0.95), _ms(true_ttft, 0.95)),
        "tpot_error_p95": quantile(tpot_error, 0.95),
        "merged_reads": sum(mine.merged_reads or 0 for mine in client) / reads if reads else None,
        "server_late_p95_ms": _ms([true.late_ns * 1e-9 for _, true in pairs], 0.95),
    }


def medians(rows: Sequence[Row]) -> Row:
    """Each figure's median over several runs; a figure that is no number, or missing in one, is the first run's."""
    return {
        name: median(row[name] for row in rows) if all(_is_number(row[name]) for row in rows) else value
        for name, value in rows[0].items()
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
