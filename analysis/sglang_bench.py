"""Results of SGLang's ``bench_serving`` (one object a line, each a level).

TTFT is the first chunk with text, as ours (old versions overlooked reasoning). E2E runs on to the end of the answer,
and TPOT is taken from that. ITL is the gap between chunks with text; against SGLang's own ``/generate`` each gap is
spread over the tokens of its chunk. Prompt tokens are counted by the tool, without the chat template. Where the server
sends no usage, the asked length stands for the length of the answer.
"""

from __future__ import annotations

from analysis.figures import Figure, number, ratio
from analysis.imported import (
    Document,
    Imported,
    as_count,
    as_number,
    count,
    count_failures,
    decode_figures,
    error_texts,
    from_sample,
    from_summary,
    level_of,
    list_of,
    throughput,
)
from analysis.levels import LevelRow
from analysis.outcome import Note

TOOL = "SGLang bench_serving"
_KEYS = {"mean_e2e_latency_ms", "total_output_tokens_retokenized", "completed", "duration"}
_TIMES = {"ttft": "ttft", "tpot": "stream_tpot", "e2e_latency": "stream_end"}
_SPREADS_GAPS = ("sglang", "sglang-native")  # backends


def is_sglang_bench(document: Document) -> bool:
    return document.keys() >= _KEYS


def read_sglang_bench(documents: list[Document]) -> Imported:
    """Each document is a level."""
    imported = Imported(TOOL)
    for document in documents:
        imported.levels.append(_level(document))
        imported.failures += error_texts(document)
    text = "output tokens: the server's count, or the asked length where it sent none; the file does not say which"
    imported.notes.append(Note("tokens", text))
    if any("errors" not in document for document in documents):
        text = "failures are not in the file unless it was written with --output-details: their number is unknown"
        imported.notes.append(Note("failures", text))
    return imported


def _level(document: Document) -> LevelRow:
    users, rate = as_count(document.get("max_concurrency")), as_number(document.get("request_rate"))
    row = level_of(users=users, rate_per_s=rate, label="all at once" if users is None and rate is None else "")
    ok = as_count(document.get("completed")) or 0
    failures = error_texts(document)
    count(row, ok=ok, failed=len(failures) if "errors" in document else None)
    count_failures(row, failures)
    tokens, wall_s = as_number(document.get("total_output_tokens")), as_number(document.get("duration"))
    row.figures |= throughput(ok=ok, tokens=tokens, prompt_tokens=None, wall_s=wall_s)
    row.figures |= {
        "total_tok_s": number(as_number(document.get("total_throughput"))),
        "peak_chunks_s": number(as_number(document.get("max_output_tokens_per_s"))),
        "in_flight_mean": number(as_number(document.get("concurrency"))),
        "asked_input_tokens_mean": number(ratio(as_number(document.get("total_input_tokens")), ok)),
    }
    if ok:
        row.figures |= _times(document, ok) | _details(document, ok)
    return row


def _times(document: Document, ok: int) -> dict[str, Figure]:
    spreads = document.get("backend") in _SPREADS_GAPS
    figures: dict[str, Figure] = {}
    for theirs, name in {**_TIMES, "itl": "spread_gap" if spreads else "chunk_gap"}.items():
        keys = {label: f"{label}_{theirs}_ms" for label in ("p90", "p95", "p99", "mean")}
        keys |= {"p50": f"median_{theirs}_ms", "mean": f"mean_{theirs}_ms"}
        figures |= from_summary(name, document, keys, scale=0.001, n=None if theirs == "itl" else ok)
    return figures


def _details(document: Document, ok: int) -> dict[str, Figure]:
    """Our own figures from the requests where ``--output-details`` wrote them: first token and gaps tell the last."""
    kept = [
        (start, sum(map(float, gaps)), as_number(tokens))
        for start, gaps, tokens, error in zip(
            *(list_of(document.get(key)) for key in ("ttfts", "itls", "output_lens", "errors")), strict=False
        )
        if not error and as_number(start) and isinstance(gaps, list)
    ]
    if len(kept) != ok:
        return {}
    figures = from_sample("ttft", [start for start, _, _ in kept])
    figures |= from_sample("e2e", [start + decode for start, decode, _ in kept])
    return figures | decode_figures([tokens for _, _, tokens in kept], [decode for _, decode, _ in kept])
