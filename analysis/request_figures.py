"""Latencies, lengths and gaps over the requests of a level or of one class of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.figures import BLANK, QUANTILES, Figure, Mark, Values, mean_figure, number, quantile_figure, ratio
from analysis.requests_csv import values_of
from analysis.window import Window
from tokenswarm.quantiles import LogHistogram
from tokenswarm.records import Phase

LATENCIES: tuple[str, ...] = ("ttft", "tpot", "e2e")
MOST_UNTOLD = 0.05  # share of the requests that may lack a count


def latencies(good: pd.DataFrame, infinitely_late: int) -> dict[str, Figure]:
    """Quantiles over the successes, or over all with a failure counted as infinitely late; means over successes."""
    figures: dict[str, Figure] = {}
    for name in LATENCIES:
        known = values_of(good[f"{name}_s"])
        values: Values = np.concatenate([known, np.full(infinitely_late, np.inf)]) if infinitely_late else known
        for label, q in QUANTILES.items():
            figures[f"{name}_{label}_s"] = quantile_figure(values, q)
        figures[f"{name}_mean_s"] = mean_figure(known)
    return figures


def sizes(good: pd.DataFrame) -> dict[str, Figure]:
    """Per-request decode speed and lengths."""
    decoded = good[good["request_tok_s"].notna()]
    decode_s = float((decoded["last_token_s"] - decoded["first_token_s"]).sum())
    return {
        "per_request_tok_s": number(ratio(float(decoded["output_tokens"].sum()), decode_s)),
        "output_tokens_mean": mean_figure(values_of(good["output_tokens"])),
        "asked_output_tokens_mean": mean_figure(values_of(good["asked_output_tokens"])),
        "prompt_tokens_mean": mean_figure(values_of(good["prompt_tokens"])),
        "asked_input_tokens_mean": mean_figure(values_of(good["asked_input_tokens"])),
        "request_bytes_mean": mean_figure(values_of(good["request_bytes"])),
    }


def prompt_tokens(rows: pd.DataFrame, window: Window, whole_window: bool) -> float | None:
    """Prompt tokens of the successful measured requests; with ``whole_window`` of all whose first token came in the
    window, those of a warm-up that was still under way too. Blank unless at least 95 % of them tell."""
    counted = rows[(rows["phase"] == Phase.MEASURED) & rows["error_kind"].isna()]
    if whole_window:
        counted = rows[rows["first_token_s"].between(window.start_s, window.end_s)]
    known = counted["prompt_tokens"].dropna()
    return float(known.sum()) if len(known) and len(known) >= (1 - MOST_UNTOLD) * len(counted) else None


def gap_figures(gaps: pd.DataFrame) -> dict[str, Figure]:
    """Chunk gaps of the measured requests, pooled in a histogram with 1 % relative error."""
    rows = gaps[gaps["phase"] == Phase.MEASURED]
    histogram = LogHistogram()
    for bucket, count in zip(rows["bucket"].tolist(), rows["count"].tolist(), strict=True):
        histogram.merge({int(bucket): int(count)})
    n = histogram.total
    figures = {f"chunk_gap_{label}_s": Figure(histogram.quantile(q), n=n) for label, q in QUANTILES.items()}
    return figures | {"chunk_gap_mean_s": Figure(histogram.mean(), n=n)}


def peak_figure(peak: float | None, mean: float | None) -> Figure:
    """The best second; the mean of the window where its whole seconds all lie below it."""
    if peak is None:
        return BLANK
    return Figure(mean, marks=(Mark.EDGES,)) if mean is not None and mean > peak else Figure(peak)
