"""Tokens and requests a second of a level or of one class of it, with their intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.figures import BLANK, Figure, Values, number, ratio
from analysis.rates import counted, rate_figure, stretch_edges
from analysis.request_figures import Served, steady_ttft
from analysis.window import Arrivals, Steady, Window, tokens_arrived


class Throughput:
    """``good``: the measured requests that succeeded. ``untold``: some did, and none tells its tokens; where none did
    there is no throughput, which is not one of 0."""

    def __init__(self, window: Window | None, steady: Steady | None, good: pd.DataFrame, *, untold: bool) -> None:
        self._window, self._steady, self._good, self._untold = window, steady, good, untold
        e2e = good["e2e_s"].mean()
        self._request_s = None if pd.isna(e2e) else float(e2e)
        edges = (0.0, 0.0) if window is None else (window.start_s, window.end_s)
        self.edges = stretch_edges(*edges, self._request_s)  # of the stretches by which rates are judged

    def tokens(self, rows: pd.DataFrame, *, whole_window: bool) -> dict[str, Figure]:
        """``rows``: of all phases, which count with ``whole_window``; otherwise the tokens of the successes do."""
        window, good = self._window, self._good
        tokens = None if self._untold else float(good["output_tokens"].sum())
        if window is None:
            return {"tokens": number(tokens)}
        known = not self._untold and len(good) > 0
        source, arrived = good, tokens if known else None
        if whole_window and known:
            source, arrived = rows, tokens_arrived(rows, window)
        reached = Arrivals.of(source).until(self.edges)
        steady = self._steady
        return {
            "tokens": number(tokens),
            "wall_s": number(window.length_s),
            "window_tokens": number(arrived),
            "output_tok_s": rate_figure(ratio(arrived, window.length_s), reached, self.edges),
            "steady_tok_s": steady.token_rate(rows, self._request_s) if steady is not None and known else BLANK,
            "steady_s": number(None if steady is None else steady.length_s),
        }

    def requests(self, served: Served) -> dict[str, Figure]:
        """Successes a second, the share that failed, and TTFT in the steady part."""
        ends = served.rows["finished_s"].to_numpy(dtype="float64")[served.good]
        rate = None if self._window is None else float(np.count_nonzero(served.good)) / self._window.length_s
        figures = {
            "requests_per_s": rate_figure(rate, counted(ends, self.edges), self.edges),
            "completions_per_s": number(_between(ends)),
            "failed_share": served.share(~served.good),
        }
        if self._steady is None:
            return figures
        sent = served.rows["sent_s"].to_numpy(dtype="float64")
        return figures | steady_ttft(served, self._steady.holds(sent))


def _between(ends_s: Values) -> float | None:
    """Completions a second from the first to the last one: without the wait for the first, and without the fall of the
    load where it is slow; ``None`` for fewer than two moments."""
    known = ends_s[np.isfinite(ends_s)]
    length = float(np.ptp(known)) if len(known) else 0.0
    return (len(known) - 1) / length if length > 0 else None
