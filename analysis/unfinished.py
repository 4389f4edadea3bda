"""Latencies of a closed level by time with the requests that were under way when its time was up.

What had ended by then are the short ones: of long requests fewer end in time. Those that had not took at least until
then, whatever became of them while the load fell (see ``censored``).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.arrivals import level_entry
from analysis.censored import censored_figures
from analysis.effective_sample import EffectiveSample
from analysis.figures import Figure, Values
from analysis.run_folder import Run
from analysis.window import Window
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase

WITH_UNFINISHED = "with_unfinished_"
_ENDS = {"ttft": "first_token_s", "e2e": "last_token_s"}


def unfinished_figures(run: Run, level: int | None, rows: pd.DataFrame, window: Window | None) -> dict[str, Figure]:
    """``with_unfinished_ttft_p50_s`` and so on; nothing where no request was under way at the end."""
    if window is None:
        return {}
    phase, kind = rows["phase"], rows["error_kind"]
    cut = kind == ErrorKind.CANCELLED
    late = (phase == Phase.DRAIN) & (rows["sent_s"] >= window.start_s) & (kind.isna() | cut)
    late |= (phase == Phase.MEASURED) & cut
    if not late.any():
        return {}
    told = level_entry(run, level).get("measured_ended_s")
    up_s = window.end_s if told is None or pd.isna(told) else float(told)
    counted = rows[late | ((phase == Phase.MEASURED) & kind.isna())].sort_values("sent_s", kind="stable")
    figures: dict[str, Figure] = {}
    for name, end in _ENDS.items():
        figures |= _figures_of(f"{WITH_UNFINISHED}{name}", counted["sent_s"], counted[end], up_s)
    return figures


def _figures_of(name: str, sent_s: pd.Series[float], ended_s: pd.Series[float], up_s: float) -> dict[str, Figure]:
    """Quantiles only: a mean of what took at least so long would be no mean. A time of 0 or less is none."""
    sent, ended = sent_s.to_numpy(dtype="float64"), ended_s.to_numpy(dtype="float64")
    over = ended <= up_s
    times: Values = np.where(over, ended, up_s) - sent
    known = times[over]
    at_least = times[~over & (times > 0.0)]
    figures = censored_figures(name, known, at_least, worth=EffectiveSample(times))
    return {key: figure for key, figure in figures.items() if "_mean_" not in key}
