"""Latencies, lengths and gaps over the requests of a level or of one class of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.effective_sample import EffectiveSample
from analysis.figures import (
    BLANK,
    QUANTILES,
    Figure,
    Mark,
    Values,
    mean_figure,
    quantile_figure,
    ratio_figure,
    share_figure,
)
from analysis.window import Window
from tokenswarm.errors import ErrorKind
from tokenswarm.quantiles import LogHistogram
from tokenswarm.records import Phase

LATENCIES: tuple[str, ...] = ("ttft", "tpot", "e2e")
WITH_FAILURES = "with_failures_"  # names of quantiles in which a failure is infinitely late
LENGTHS: tuple[str, ...] = ("output_tokens", "asked_output_tokens", "prompt_tokens", "asked_input_tokens")
LENGTH_QUANTILES = {"p5": 0.05, "p50": 0.50, "p95": 0.95}
MOST_UNTOLD = 0.05  # share of the requests that may lack a count

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Served:
    """The measured requests of a level or class. ``order``: their places in the order in which they were sent, which is
    the order in which a server takes them up. ``good``, ``late``: which succeeded, and which count as infinitely late;
    both in the order of ``rows``."""

    rows: pd.DataFrame
    order: npt.NDArray[np.intp]
    good: Flags
    late: Flags

    @classmethod
    def of(cls, measured: pd.DataFrame, *, cut_is_late: bool) -> Served:
        """``cut_is_late``: what the end of the level cut is infinitely late too, else it is left out."""
        good = measured["error_kind"].isna().to_numpy()
        cut = (measured["error_kind"] == ErrorKind.CANCELLED).to_numpy(dtype=bool)
        sent = measured["sent_s"].fillna(measured["scheduled_s"]).to_numpy(dtype="float64")
        return cls(measured, np.argsort(sent, kind="stable"), good, ~good if cut_is_late else ~good & ~cut)

    def successes(self, column: str) -> Values:
        """Known values in the order of service."""
        values = self.rows[column].to_numpy(dtype="float64")
        return _known(np.where(self.good, values, np.nan)[self.order])

    def with_failures(self, column: str) -> Values:
        """As :meth:`successes`, with an infinite value in each failure's place."""
        values = np.where(self.good, self.rows[column].to_numpy(dtype="float64"), np.nan)
        return _known(np.where(self.late, np.inf, values)[self.order])

    def share(self, hit: Flags) -> Figure:
        """Of the requests that succeeded or failed; ``hit`` in the order of ``rows``."""
        cut = (self.rows["error_kind"] == ErrorKind.CANCELLED).to_numpy(dtype=bool)
        hits = hit[self.order][~cut[self.order]]
        worth = EffectiveSample(hits.astype(np.float64)).for_mean() if len(hits) else None
        return share_figure(int(hits.sum()), len(hits), worth)


def _known(values: Values) -> Values:
    return values[~np.isnan(values)]


def latencies(served: Served, *, failures_infinite: bool) -> dict[str, Figure]:
    """Quantiles over the successes, and under names of their own over all with a failure counted as infinitely late;
    with ``failures_infinite`` these stand under both names. Means over successes."""
    figures: dict[str, Figure] = {}
    for name in LATENCIES:
        known = served.successes(f"{name}_s")
        worth = EffectiveSample(known)
        over_successes = _quantiles(known, worth)
        over_all = over_successes
        if served.late.any():
            everything = served.with_failures(f"{name}_s")
            over_all = _quantiles(everything, EffectiveSample(everything))
        shown = over_all if failures_infinite else over_successes
        figures |= {f"{name}_{label}_s": figure for label, figure in shown.items()}
        figures |= {f"{WITH_FAILURES}{name}_{label}_s": figure for label, figure in over_all.items()}
        figures[f"{name}_mean_s"] = mean_figure(known, worth)
    return figures


def _quantiles(served: Values, worth: EffectiveSample, asked: dict[str, float] = QUANTILES) -> dict[str, Figure]:
    """Of values in the order of service."""
    ordered = np.sort(served)
    return {label: quantile_figure(ordered, q, worth) for label, q in asked.items()}


def steady_ttft(served: Served, inside: Flags) -> dict[str, Figure]:
    """TTFT of the successes that were sent while the level was steady; ``inside`` in the order of the rows."""
    values = np.where(served.good & inside, served.rows["ttft_s"].to_numpy(dtype="float64"), np.nan)
    known = _known(values[served.order])
    found = _quantiles(known, EffectiveSample(known), {"p50": 0.50, "p95": 0.95})
    return {f"steady_ttft_{label}_s": figure for label, figure in found.items()}


def sizes(served: Served) -> dict[str, Figure]:
    """Per-request decode speed, and lengths as asked for and as they came."""
    good = served.rows[served.good]
    decoded = good[good["request_tok_s"].notna()]
    decode_s = (decoded["last_token_s"] - decoded["first_token_s"]).to_numpy(dtype="float64")
    figures = {"per_request_tok_s": ratio_figure(decoded["output_tokens"].to_numpy(dtype="float64"), decode_s)}
    for name in LENGTHS:
        known = served.successes(name)
        worth = EffectiveSample(known)
        figures[f"{name}_mean"] = mean_figure(known, worth)
        figures |= {f"{name}_{label}": figure for label, figure in _quantiles(known, worth, LENGTH_QUANTILES).items()}
    return figures | {"request_bytes_mean": mean_figure(served.successes("request_bytes"))}


def cached_share(served: Served) -> Figure:
    """Cached tokens over prompt tokens of the successes that tell both."""
    told = served.rows[served.good & served.rows["cached_tokens"].notna() & served.rows["prompt_tokens"].notna()]
    counts = (told[name].to_numpy(dtype="float64") for name in ("cached_tokens", "prompt_tokens"))
    return ratio_figure(*counts)


def prompt_tokens(rows: pd.DataFrame, window: Window, whole_window: bool) -> float | None:
    """Prompt tokens of the successful measured requests; with ``whole_window`` of all whose first token came in the
    window, those of a warm-up that was still under way too. Blank unless at least 95 % of them tell."""
    counted = rows["error_kind"].isna() & (rows["phase"] == Phase.MEASURED)
    if whole_window:
        counted = rows["first_token_s"].between(window.start_s, window.end_s)
    told = rows.loc[counted, "prompt_tokens"]
    known = told.dropna()
    return float(known.sum()) if len(known) and len(known) >= (1 - MOST_UNTOLD) * len(told) else None


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
