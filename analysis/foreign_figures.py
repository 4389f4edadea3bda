"""Figures of other tools that are none of ours: what they mean there, and which figure of ours comes nearest.

A reader of another tool's results uses our name only where the tool measures what we do; every other figure has a name
of this closed list, so that two definitions never stand in one column.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Foreign:
    """``near``: the figure of ours that it is nearest to, without statistic and unit where it has several statistics;
    empty where none is near.

    ``times``: has statistics and is in seconds; else one number, whose name ends with its unit.
    """

    title: str
    near: str
    text: str
    times: bool = True


FOREIGN: dict[str, Foreign] = {
    "first_chunk": Foreign(
        "first chunk", "ttft", "send to the first chunk with choices; a chunk that brings only the role counts as one"
    ),
    "last_chunk": Foreign(
        "last chunk", "e2e", "send to the last chunk with choices, which may be the closing one without text"
    ),
    "chunk_tpot": Foreign("chunk TPOT", "tpot", "(last chunk - first chunk) / (output tokens - 1), both as above"),
    "any_chunk_gap": Foreign(
        "any chunk gap", "chunk_gap", "gaps between all chunks with choices, those to chunks without text included"
    ),
    "stream_end": Foreign(
        "stream end", "e2e", "send to the end of the answer, chunk of usage and [DONE] included, not to the last token"
    ),
    "stream_tpot": Foreign("stream TPOT", "tpot", "(stream end - TTFT) / (output tokens - 1)"),
    "weighted_tpot": Foreign(
        "weighted TPOT", "tpot", "TPOT of each request as often as it has gaps between tokens: long answers count more"
    ),
    "stream_end_per_token": Foreign(
        "stream end per token", "tpot", "stream end / output tokens: the TTFT is spread over the tokens"
    ),
    "e2e_per_token": Foreign("E2E per token", "tpot", "E2E / output tokens: the TTFT is spread over the tokens"),
    "spread_gap": Foreign(
        "spread gap", "chunk_gap", "each gap between chunks divided evenly among the tokens that the later one brings"
    ),
    "token_gap": Foreign(
        "token gap", "chunk_gap", "gaps between tokens; those that come in one chunk are 0 apart, as a tokenizer counts"
    ),
    "total_tok_s": Foreign("total tok/s", "output_tok_s", "prompt and output tokens together / wall time", False),
    "peak_chunks_s": Foreign(
        "peak chunks/s", "peak_tok_s", "most chunks in one second of a fixed grid, each counted as one token", False
    ),
    "whole_run_tok_s": Foreign(
        "whole-run tok/s",
        "output_tok_s",
        "output tokens of the completed requests / time of the whole run, start-up and cut requests included",
        False,
    ),
    "whole_run_prompt_tok_s": Foreign(
        "whole-run prompt tok/s", "prompt_tok_s", "prompt tokens of completed requests / time of the whole run", False
    ),
    "whole_run_total_tok_s": Foreign(
        "whole-run total tok/s", "output_tok_s", "prompt and output tokens together / time of the whole run", False
    ),
    "whole_run_requests_per_s": Foreign(
        "whole-run requests/s", "requests_per_s", "completed requests / time of the whole run", False
    ),
    "whole_run_s": Foreign("whole run s", "wall_s", "time of the run from its start to its stop", False),
    "response": Foreign(
        "response time", "", "of all requests as Locust takes it, failed ones too; percentiles rounded to two digits"
    ),
    "response_10s": Foreign(
        "response time of 10 s", "", "median over the level of Locust's percentiles of the last 10 s, failures included"
    ),
    "all_requests_per_s": Foreign("all requests/s", "", "requests per second as Locust counts, failed ones too", False),
    "mean_request_tok_s": Foreign(
        "mean tok/s of a request", "per_request_tok_s", "mean over the requests of 1 / TPOT", False
    ),
}  # fmt: skip

STATISTICS = ("p50", "p90", "p95", "p99", "mean")


def foreign_of(figure: str) -> str:
    """Name in :data:`FOREIGN` of a figure such as ``stream_end_p95_s``; empty for figures of ours."""
    if figure in FOREIGN:
        return figure
    name, _, statistic = figure.removesuffix("_s").rpartition("_")
    return name if statistic in STATISTICS and name in FOREIGN else ""


def near_of(figure: str) -> str:
    """Figure of ours that a foreign one is nearest to (``e2e_p95_s`` of ``stream_end_p95_s``); empty for ours and
    where none is near."""
    name = foreign_of(figure)
    if not name:
        return ""
    near = FOREIGN[name].near
    if not near:
        return ""
    return f"{near}{figure.removeprefix(name)}" if FOREIGN[name].times else near
