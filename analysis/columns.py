"""Which columns a table has, in which unit, and how a number looks to a person."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analysis.figures import QUANTILES, SYMBOL, Figure
from analysis.jobs import PARTS
from analysis.levels import LevelRow
from analysis.outcome import NameRow

_SAME = 1.0 + 1e-6  # ends that are closer differ by rounding only


@dataclass(frozen=True)
class Column:
    """``key`` is the name in CSV, unit included; ``figure`` the name inside, in seconds; ``scale`` leads from it."""

    key: str
    figure: str
    title: str
    decimals: int
    scale: float = 1.0


def _ms(key: str, title: str) -> Column:
    return Column(key, key.removesuffix("_ms") + "_s", title, 0, 1000.0)


def plain(key: str, title: str, decimals: int) -> Column:
    """Of a figure with the same name and unit as the column."""
    return Column(key, key, title, decimals)


_OUTPUT = plain("output_tok_s", "output tok/s", 1)
_STEADY = plain("steady_tok_s", "steady tok/s", 1)
_PEAK = plain("peak_tok_s", "peak tok/s", 0)
_TTFT = {label: _ms(f"ttft_{label}_ms", f"TTFT {label} ms") for label in ("p50", "p90", "p95", "p99")}
_TPOT = {label: _ms(f"tpot_{label}_ms", f"TPOT {label} ms") for label in ("p50", "p90", "p95", "p99")}
_E2E = {label: plain(f"e2e_{label}_s", f"E2E {label} s", 1) for label in ("p50", "p90", "p95", "p99")}
_REST = (
    plain("per_request_tok_s", "tok/s per request", 1),
    _ms("ttft_mean_ms", "TTFT mean ms"),
    plain("goodput_per_s", "goodput requests/s", 2),
    plain("tokens", "tokens", 0),
    plain("wall_s", "wall s", 1),
)

# Quantiles over more than the successes: a failure infinitely late; those under way when a level's time was up.
WITH_FAILURES = (
    *(_ms(f"with_failures_ttft_{label}_ms", f"TTFT {label} ms, failures late") for label in QUANTILES),
    *(_ms(f"with_failures_tpot_{label}_ms", f"TPOT {label} ms, failures late") for label in QUANTILES),
    *(plain(f"with_failures_e2e_{label}_s", f"E2E {label} s, failures late", 1) for label in QUANTILES),
)
WITH_UNFINISHED = (
    *(_ms(f"with_unfinished_ttft_{label}_ms", f"TTFT {label} ms, with unfinished") for label in QUANTILES),
    *(plain(f"with_unfinished_e2e_{label}_s", f"E2E {label} s, with unfinished", 1) for label in QUANTILES),
)

# From the time at which a request was due. Only levels by the clock have these figures.
_DUE_TTFT = {
    label: _ms(f"scheduled_ttft_{label}_ms", f"scheduled TTFT {label} ms")
    for label in ("p50", "p90", "p95", "p99", "mean")
}
_DUE_E2E = {
    label: plain(f"scheduled_e2e_{label}_s", f"scheduled E2E {label} s", 1)
    for label in ("p50", "p90", "p95", "p99", "mean")
}

# What became of the sessions that arrived by the clock.
ARRIVALS: tuple[Column, ...] = (
    plain("scheduled_per_s", "scheduled per s", 2),
    plain("sent_per_s", "sent per s", 2),
    plain("done_per_s", "done per s", 2),
    _ms("send_delay_p50_ms", "send delay p50 ms"),
    _ms("send_delay_p95_ms", "send delay p95 ms"),
    _ms("send_delay_max_ms", "send delay max ms"),
    plain("sessions_mean", "in flight mean", 1),
    plain("sessions_max", "in flight max", 0),
)

# What a person reads. The counts stand before them and `ok` after them.
SHOWN: tuple[Column, ...] = (
    _OUTPUT, _STEADY, _PEAK, _TTFT["p50"], _TTFT["p95"], _TTFT["p99"], _TPOT["p50"], _TPOT["p95"], _E2E["p50"],
    _E2E["p95"], *_REST,
)  # fmt: skip

# Likewise of levels by the clock: latency from the schedule first, that of the service alone beside it.
BY_CLOCK: tuple[Column, ...] = (
    *(_DUE_TTFT[label] for label in ("p50", "p90", "p95", "p99")),
    *(_DUE_E2E[label] for label in ("p50", "p90", "p95", "p99")),
    _TTFT["p50"], _TTFT["p95"], _E2E["p50"], _E2E["p95"], _TPOT["p50"], _TPOT["p95"], _OUTPUT, _PEAK,
    *(column for column in _REST if column.key != "ttft_mean_ms"),
)  # fmt: skip

# Of captioning traffic.
CAPTIONS: tuple[Column, ...] = (
    plain("images_per_s", "images/s", 1),
    plain("captions_per_h", "captions per hour", 0),
    plain("prompt_tok_s", "prompt tok/s", 1),
    _ms("ttft_first_p50_ms", "1st TTFT p50 ms"),
    _ms("ttft_first_p95_ms", "1st TTFT p95 ms"),
    _ms("ttft_second_p50_ms", "2nd TTFT p50 ms"),
    _ms("ttft_second_p95_ms", "2nd TTFT p95 ms"),
    plain("tokens_per_image", "tokens per image", 1),
    Column("request_kb_mean", "request_bytes_mean", "request kB", 1, 0.001),
    _ms("encode_mean_ms", "encoding ms"),
    plain("picture_waits", "picture waits", 0),
    _ms("picture_wait_mean_ms", "wait mean ms"),
)

# Of the processes that made the load, of the one that has most. Send delays stand with the arrivals.
GENERATOR: tuple[Column, ...] = (
    plain("load_processes", "load processes", 0),
    plain("cpu_share", "CPU share", 3),
    plain("cpu_share_max", "CPU share max", 3),
    _ms("loop_lag_p95_ms", "loop lag p95 ms"),
    _ms("read_lag_p95_ms", "read lag p95 ms"),
    plain("process_events_per_s", "events/s per process", 0),
    plain("merged_reads_share", "merged reads share", 3),
    plain("held_s", "held s", 1),
)

# The published tables' columns in their order, then everything else that is known.
PUBLISHED: tuple[Column, ...] = (
    _OUTPUT, _PEAK, _TTFT["p50"], _TTFT["p95"], _TPOT["p50"], _TPOT["p95"], _E2E["p50"], _E2E["p95"],
)  # fmt: skip
FURTHER: tuple[Column, ...] = (
    _TTFT["p99"],
    *_REST,
    _STEADY,
    plain("steady_s", "steady s", 1),
    plain("window_tokens", "tokens in window", 0),
    plain("requests_per_s", "requests/s", 2),
    plain("in_flight_mean", "in flight", 1),
    _TTFT["p90"],
    _TPOT["p90"],
    _TPOT["p99"],
    _ms("tpot_mean_ms", "TPOT mean ms"),
    _E2E["p90"],
    _E2E["p99"],
    plain("e2e_mean_s", "E2E mean s", 1),
    _ms("chunk_gap_p50_ms", "chunk gap p50 ms"),
    _ms("chunk_gap_p95_ms", "chunk gap p95 ms"),
    _ms("chunk_gap_p99_ms", "chunk gap p99 ms"),
    _ms("chunk_gap_mean_ms", "chunk gap mean ms"),
    plain("failed_share", "failed share", 3),
    plain("good_share", "share in objective", 3),
    _ms("steady_ttft_p50_ms", "steady TTFT p50 ms"),
    _ms("steady_ttft_p95_ms", "steady TTFT p95 ms"),
    *WITH_FAILURES,
    *WITH_UNFINISHED,
    *(
        plain(f"{kind}_{label}", f"{kind.replace('_', ' ')} {label}", 1)
        for kind in ("output_tokens", "asked_output_tokens", "prompt_tokens", "asked_input_tokens")
        for label in ("mean", "p5", "p50", "p95")
    ),
    plain("cache_share", "cache share", 3),
    plain("cache_share_implied", "cache share implied", 3),
    *(plain(f"image_cache_share{kind}", f"MM cache share{kind.replace('_', ' ')}", 3) for kind in ("", "_implied")),
    *(plain(f"job_{label}_s", f"job {label} s", 1) for label in ("p50", "p90", "p95", "p99", "mean")),
    *(plain(f"job_{part}_mean_s", f"job {part} s", 1) for part in PARTS),
    plain("steps_mean", "steps mean", 1),
    plain("jobs_per_h", "jobs/h", 1),
    plain("good_jobs_per_h", "jobs/h in objective", 1),
    *CAPTIONS,
    *_DUE_TTFT.values(),
    *_DUE_E2E.values(),
    *ARRIVALS,
    *GENERATOR,
)

# One row a name of a locustfile that is not ours.
NAMES: tuple[Column, ...] = (
    _ms("p50_ms", "p50 ms"),
    _ms("p95_ms", "p95 ms"),
    _ms("p99_ms", "p99 ms"),
    _ms("mean_ms", "mean ms"),
    _ms("max_ms", "max ms"),
    plain("requests_per_s", "requests/s over the whole run", 2),
)


def scaled(figure: Figure, column: Column) -> Figure:
    """The figure in the unit of the column."""

    def times(value: float | None) -> float | None:
        return None if value is None else value * column.scale

    return replace(figure, value=times(figure.value), low=times(figure.low), high=times(figure.high))


def cells(rows: Sequence[LevelRow | NameRow], column: Column, *, intervals: bool = False) -> list[str]:
    """What a person reads, one text a row: the number with its marks, blank for unknown."""
    figures = [scaled(row.figure(column.figure), column) for row in rows]
    return texts_of(figures, column.decimals, intervals=intervals)


def texts_of(figures: Sequence[Figure], decimals: int, *, intervals: bool = False) -> list[str]:
    """All with the same decimals, so that a column can be compared at a glance. ``intervals``: each with its 95 %
    interval behind it, as far as there is one."""
    shared = decimals_for((figure.value for figure in figures), decimals)
    if intervals:
        shared = max(shared, min(shared + 2, _decimals_of_ends(figures)))
    return [
        ""
        if figure.value is None
        else _fixed(figure.value, shared)
        + "".join(SYMBOL[mark] for mark in figure.marks)
        + (_interval(figure, shared) if intervals else "")
        for figure in figures
    ]


def _decimals_of_ends(figures: Sequence[Figure]) -> int:
    """So many that the narrowest interval is two digits wide; 0 where all are whole or there is none."""
    widths = [f.high - f.low for f in figures if f.low is not None and f.high is not None and f.high > f.low * _SAME]
    narrow = min((width for width in widths if width < math.inf), default=100.0)
    return max(0, 1 - math.floor(math.log10(narrow)))


def _interval(figure: Figure, decimals: int) -> str:
    if figure.low is None and figure.high is None:
        return ""
    low, high = ("" if end is None else _fixed(end, decimals) for end in (figure.low, figure.high))
    return f" [{low}..{high}]"


def number_text(value: float, decimals: int) -> str:
    """A number that stands alone."""
    return _fixed(value, decimals_for((value,), decimals))


def decimals_for(values: Iterable[float | None], decimals: int) -> int:
    """At least ``decimals``; more for three digits of a smallest value below 10, if the largest keeps to four.

    Counts (whole numbers without decimals) stay whole.
    """
    known = [abs(value) for value in values if value and not math.isinf(value)]
    if not known or min(known) >= 10 or (decimals == 0 and all(value.is_integer() for value in known)):
        return decimals
    smallest, largest = (math.floor(math.log10(value)) for value in (min(known), max(known)))
    return max(decimals, min(6, 2 - smallest, 3 - largest))


def _fixed(value: float, decimals: int) -> str:
    return "∞" if math.isinf(value) else f"{value:.{decimals}f}"
