"""One level of a calibration: every request as the client reports it, held against the server's own record. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import Row, Seen, seen
from benchmarks.server import TruthRow
from tokenswarm.calibration import ERROR_LIMIT
from tokenswarm.quantiles import quantile

_FIGURES = ("ttft", "tpot", "e2e")
SEND_DELAY_LIMIT_S = 0.01  # at p95; beyond, requests were not sent when they were due


def measured_level(
    load: float,
    rows: Sequence[Mapping[str, str]],
    truth: Mapping[str, TruthRow],
    window_s: tuple[float, float],
    *,
    by_clock: bool,
) -> Row:
    """What ``calibration.json`` keeps of a level; ``rows`` are those of it in ``requests.csv``, ``window_s`` its
    measured time on their clock.

    Errors are without sign, in milliseconds; ``None`` where nothing could be compared.
    """
    own = [row for row in rows if row["phase"] == "measured"]
    client = seen(dict(row) for row in own)
    pairs = [(mine, truth[mine.request_id]) for mine in client if mine.request_id in truth]
    pairs = [(mine, true) for mine, true in pairs if true.first_token_ns is not None]
    length_s = window_s[1] - window_s[0]
    row: Row = {
        "load": load,
        "seconds": length_s,
        "requests": len(client),
        "compared": len(pairs),
        "failed": sum(1 for one in own if one["error_kind"] not in ("", "cancelled")),
        "tokens_exact": all(mine.output_tokens == true.tokens for mine, true in pairs) if pairs else None,
        **_errors(pairs),
        **_spread("send_delay", [float(one["sent_s"]) - float(one["scheduled_s"]) for one in own if _sent(one)]),
        "merged_reads": _merged(client),
        "events_per_s": _events_per_s(rows, window_s),
        "requests_per_s": len(client) / length_s if length_s > 0 else None,
        "server_late_p95_ms": _ms(quantile([true.late_ns * 1e-9 for _, true in pairs], 0.95)),
    }
    row["doubts"] = doubts(row, by_clock=by_clock)
    row["truthful"] = not row["doubts"]
    return row


def doubts(level: Row, *, by_clock: bool) -> list[str]:
    """Why a level is not truthful, one clause each; empty for one that is.

    A late send falsifies latency from the schedule; in a closed loop it only makes the load a little lower.
    """
    found = []
    if not level["compared"]:
        return ["no request could be compared"]
    if level["failed"]:
        found.append(f"{level['failed']} requests failed")
    if level["compared"] < level["requests"]:
        found.append(f"{level['requests'] - level['compared']} requests are not in the server's record")
    if not level["tokens_exact"]:
        found.append("token counts differ from the server's")
    for name in _FIGURES:
        error_ms, median_ms = level[f"{name}_error_p95_ms"], level[f"true_{name}_p50_ms"]
        if error_ms is not None and median_ms and error_ms > ERROR_LIMIT * median_ms:
            share = error_ms / median_ms
            found.append(f"{name.upper()} error p95 {milliseconds(error_ms)} is {share:.0%} of the true median")
    delay_ms = level["send_delay_p95_ms"]
    if by_clock and delay_ms is not None and delay_ms > SEND_DELAY_LIMIT_S * 1e3:
        found.append(f"requests were sent {delay_ms:.0f} ms late at p95")
    return found


def milliseconds(value: float) -> str:
    """Two digits, or whole milliseconds, never with an exponent."""
    if value < 0.001:
        return "below 0.001 ms"
    return f"{value:.2g} ms" if value < 10 else f"{value:.0f} ms"


def _errors(pairs: Sequence[tuple[Seen, TruthRow]]) -> Row:
    mine: dict[str, list[float]] = {name: [] for name in _FIGURES}
    true: dict[str, list[float]] = {name: [] for name in _FIGURES}
    for client, server in pairs:
        first_s, last_s = server.first_token_ns * 1e-9, server.last_token_ns * 1e-9  # type: ignore[operator]
        sent_s, received_s = client.sent_s, server.received_ns * 1e-9
        mine["ttft"].append(client.first_token_s - sent_s)
        true["ttft"].append(first_s - received_s)
        mine["e2e"].append(client.last_token_s - sent_s)
        true["e2e"].append(last_s - received_s)
        if server.tokens > 1 and last_s > first_s:
            mine["tpot"].append((client.last_token_s - client.first_token_s) / (server.tokens - 1))
            true["tpot"].append((last_s - first_s) / (server.tokens - 1))
    row: Row = {}
    for name in _FIGURES:
        row |= _spread(f"{name}_error", [abs(a - b) for a, b in zip(mine[name], true[name], strict=True)])
        row[f"true_{name}_p50_ms"] = _ms(quantile(true[name], 0.5))
    return row


def _spread(name: str, values_s: Sequence[float]) -> dict[str, float | None]:
    return {
        f"{name}_p50_ms": _ms(quantile(values_s, 0.5)),
        f"{name}_p95_ms": _ms(quantile(values_s, 0.95)),
        f"{name}_max_ms": _ms(max(values_s, default=None)),
    }


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else value_s * 1e3


def _sent(row: Mapping[str, str]) -> bool:
    return bool(row["sent_s"] and row["scheduled_s"])


def _merged(client: Sequence[Seen]) -> float | None:
    reads = sum(mine.reads or 0 for mine in client)
    return sum(mine.merged_reads or 0 for mine in client) / reads if reads else None


def _events_per_s(rows: Sequence[Mapping[str, Any]], window_s: tuple[float, float]) -> float | None:
    """Token events of all requests that fall into the window, taken as even between first and last token."""
    start_s, end_s = window_s
    if end_s <= start_s:
        return None
    total = 0.0
    for row in rows:
        if not (row["chunks"] and row["first_token_s"] and row["last_token_s"]):
            continue
        first_s, last_s = float(row["first_token_s"]), float(row["last_token_s"])
        inside_s = min(last_s, end_s) - max(first_s, start_s)
        if last_s > first_s:
            total += int(row["chunks"]) * max(0.0, inside_s) / (last_s - first_s)
        elif start_s <= first_s <= end_s:
            total += int(row["chunks"])
    return total / (end_s - start_s)
