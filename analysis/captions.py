"""Captioning traffic of a level: pictures and captions in time, first and second questions, waits for pictures.

A *caption* is an answered question about pictures. A *picture* counts once, when the first question about it has been
answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError

from analysis.figures import BLANK, Figure, Mark, Values, mean_figure, number, quantile_figure, ratio
from analysis.limits import mapping
from analysis.requests_csv import values_of
from analysis.run_folder import Run
from analysis.window import Counting
from tokenswarm.distributions import Distribution
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase

WAIT_S = 0.001  # a shorter time until the pictures are there is no wait
MOST_WAITING = 0.02  # share of the streams' time; two runs of one load differ by as much
_QUESTIONS = {"first": 0, "second": 1}
_QUANTILES = {"p50": 0.50, "p95": 0.95}


@dataclass(frozen=True)
class LevelCaptions:
    """The measured requests with pictures of a level, or of one class of it. ``wait_share``: of the streams' time."""

    captions: int
    pictures: int
    sessions: int
    waits: int  # sessions that waited for their pictures
    wait_share: float | None
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def waited(self) -> bool:
        """Pictures could not be made as fast as they were used."""
        return (self.wait_share or 0.0) > MOST_WAITING


def level_captions(rows: pd.DataFrame, counting: Counting, texts: dict[str, float]) -> LevelCaptions | None:
    """``None`` where no measured request has pictures. ``texts``: see ``text_tokens``."""
    about = rows[rows["images"] > 0]
    measured = about[about["phase"] == Phase.MEASURED]
    if measured.empty:
        return None
    good, first = measured[measured["error_kind"].isna()], measured[measured["turn"] == 0]
    waits = first.loc[first["prepare_s"] > WAIT_S, "prepare_s"]
    figures = {
        **_rates(about, counting),
        **_first_tokens(measured, counting.failures_infinite),
        "tokens_per_image": _tokens_per_image(good, texts),
        "encode_mean_s": mean_figure(values_of(first["encode_s"])),
        "picture_wait_mean_s": mean_figure(values_of(waits)),
        "picture_waits": number(float(len(waits)) if first["prepare_s"].notna().any() else None),
    }
    captions = LevelCaptions(
        captions=len(good),
        pictures=int(good.loc[good["turn"] == 0, "images"].sum()),
        sessions=len(first),
        waits=len(waits),
        wait_share=_wait_share(measured),
        figures=figures,
    )
    for name in ("images_per_s", "captions_per_h", "picture_wait_mean_s") if captions.waited else ():
        figures[name] = figures[name].marked(Mark.WAITED)
    return captions


def text_tokens(run: Run) -> dict[str, float]:
    """Tokens of the first question's text, in the mean, by class; without those whose text is of unknown length."""
    known = {name: _question_tokens(item) for name, item in run.traffic_classes.items()}
    return {name: tokens for name, tokens in known.items() if tokens is not None}


def _question_tokens(traffic: dict[str, Any]) -> float | None:
    images = mapping(traffic.get("images"))
    told = traffic.get("system_prompt") or images.get("parquet") or images.get("hub")
    if told or traffic.get("kind") != "captioning":
        return None
    try:
        lengths: Distribution = TypeAdapter(Distribution).validate_python(traffic.get("question_tokens"))
    except ValidationError:
        return None
    return float(lengths.mean)


def _rates(about: pd.DataFrame, counting: Counting) -> dict[str, Figure]:
    """The measured answers; with ``whole_window`` those of any phase, each by the share of its time that lies in the
    window: where a warm-up is a time, its last requests are the first ones of the window."""
    window = counting.window
    answered = about[about["error_kind"].isna()]
    if window is None or answered.empty:
        return {"images_per_s": BLANK, "captions_per_h": BLANK}
    if counting.whole_window:
        counted = answered
        weights = counting.inside(counted["sent_s"], counted["finished_s"])
    else:
        counted = answered[answered["phase"] == Phase.MEASURED]
        weights = pd.Series(1.0, index=counted.index)
    pictures = (weights * counted["images"]).where(counted["turn"] == 0, 0.0)
    return {
        "images_per_s": number(float(pictures.sum()) / window.length_s),
        "captions_per_h": number(float(weights.sum()) * 3600.0 / window.length_s),
    }


def _first_tokens(measured: pd.DataFrame, failures_infinite: bool) -> dict[str, Figure]:
    """TTFT of first and second questions apart; blank where there are none."""
    figures = {}
    for name, turn in _QUESTIONS.items():
        asked = measured[measured["turn"] == turn]
        values: Values = values_of(asked.loc[asked["error_kind"].isna(), "ttft_s"])
        if failures_infinite:
            failed = asked["error_kind"].notna() & (asked["error_kind"] != ErrorKind.CANCELLED)
            values = np.concatenate([values, np.full(int(failed.sum()), np.inf)])
        for label, q in _QUANTILES.items():
            figures[f"ttft_{name}_{label}_s"] = quantile_figure(values, q)
    return figures


def _tokens_per_image(good: pd.DataFrame, texts: dict[str, float]) -> Figure:
    """As the server tells; else what first prompts have beyond their text, an estimate with the chat template in it."""
    told = good[good["image_tokens"].notna()]
    if len(told):
        return number(ratio(float(told["image_tokens"].sum()), float(told["images"].sum())))
    first = good[(good["turn"] == 0) & good["prompt_tokens"].notna()]
    text = first["traffic"].astype("object").map(texts).astype("float64")
    if first.empty or text.isna().any():
        return BLANK
    beyond = float((first["prompt_tokens"] - text).sum())
    return number(ratio(beyond, float(first["images"].sum()))).marked(Mark.ESTIMATED)


def _wait_share(measured: pd.DataFrame) -> float | None:
    """Of the time of all streams, what they waited for pictures; blank where no session tells."""
    if measured["prepare_s"].isna().all():
        return None
    waited = float(measured["prepare_s"].sum())
    busy = float((measured["finished_s"] - measured["sent_s"]).sum() + measured["pause_s"].sum())
    return ratio(waited, waited + busy)
