"""Results of ``vllm bench serve --save-result`` (one object a run, or one a line with ``--append-result``).

It starts the clock at the first chunk that has choices, a chunk with only the role included, and stops it at the last
such chunk; what it calls ITL is the gap between those. So none of its times has a name of ours. Quantiles are over the
successes. Token counts are the server's where it sends usage, else a tokenizer's; the file does not say which.
"""

from __future__ import annotations

from analysis.figures import Figure, number
from analysis.imported import (
    Document,
    Imported,
    as_count,
    as_number,
    count,
    count_failures,
    error_texts,
    from_sample,
    from_summary,
    level_of,
    list_of,
    throughput,
)
from analysis.levels import LevelRow
from analysis.outcome import Note

TOOL = "vllm bench serve"
_TIMES = {"ttft": "first_chunk", "tpot": "chunk_tpot", "itl": "any_chunk_gap", "e2el": "last_chunk"}
_KEYS = {"request_throughput", "output_throughput", "total_token_throughput", "completed", "total_output_tokens"}


def is_vllm_bench(document: Document) -> bool:
    return document.keys() >= _KEYS


def read_vllm_bench(documents: list[Document]) -> Imported:
    """Each document is a level."""
    imported = Imported(TOOL, model=next((str(one["model_id"]) for one in documents if one.get("model_id")), ""))
    for document in documents:
        imported.levels.append(_level(document))
        imported.failures += error_texts(document)
    if any(as_number(document.get("request_rate")) is not None for document in documents):
        imported.notes.append(Note("load", "by the clock: times count from the send, not from the time it was due"))
    return imported


def _level(document: Document) -> LevelRow:
    users, rate = as_count(document.get("max_concurrency")), as_number(document.get("request_rate"))
    unlimited = "all at once" if users is None and rate is None else ""
    row = level_of(users=users, rate_per_s=rate, label=unlimited)
    ok, sent = as_count(document.get("completed")) or 0, as_count(document.get("num_prompts"))
    failed = as_count(document.get("failed"))
    count(row, ok=ok, failed=sent - ok if failed is None and sent is not None else failed)
    count_failures(row, error_texts(document))
    row.figures |= throughput(
        ok=ok,
        tokens=as_number(document.get("total_output_tokens")),
        prompt_tokens=as_number(document.get("total_input_tokens")),
        wall_s=as_number(document.get("duration")),
    )
    row.figures["total_tok_s"] = number(as_number(document.get("total_token_throughput")))
    row.figures["peak_chunks_s"] = number(as_number(document.get("max_output_tokens_per_s")))
    if ok:
        row.figures |= _times(document, ok)
    return row


def _times(document: Document, ok: int) -> dict[str, Figure]:
    """From the requests where they are in the file (``--save-detailed``), else as summed up there."""
    figures: dict[str, Figure] = {}
    for theirs, name in _TIMES.items():
        keys = {label: f"{label}_{theirs}_ms" for label in ("p50", "p90", "p95", "p99")}
        if f"p50_{theirs}_ms" not in document:
            keys["p50"] = f"median_{theirs}_ms"
        n = None if theirs == "itl" else ok
        figures |= from_summary(name, document, keys | {"mean": f"mean_{theirs}_ms"}, scale=0.001, n=n)
    if len(ends := _successes(document, "latencies", ok)) == ok:
        figures |= from_sample("last_chunk", ends)
    if len(starts := _successes(document, "ttfts", ok)) == ok:
        figures |= from_sample("first_chunk", starts)
    return figures


def _successes(document: Document, key: str, ok: int) -> list[float]:
    """One value a success; failed requests stand there as 0."""
    values = [as_number(value) for value in list_of(document.get(key))]
    return (
        [value for value in values if value] if len(values) != ok else [value for value in values if value is not None]
    )
