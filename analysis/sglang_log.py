"""Lines of SGLang's scheduler: prefill and decode batches, retracted requests, and what it says when it starts.

Order and names of the parts differ between versions, so that each part is looked up by its name. Of several ranks of
one engine only the first one's lines count; the others print the same.
"""

from __future__ import annotations

import re

from analysis.log_entries import Kind, LogEntries, LogSample, Preempted
from analysis.log_stamps import dated_s

_HEAD = re.compile(r"\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<tags>(?: [A-Z]+\d+)*)\] (?P<text>.*)")
_BATCH = re.compile(r"(?P<kind>Decode|Prefill) batch[.,]? (?P<parts>.*)")
_PART = re.compile(r"([#A-Za-z][\w #()/-]*?): (-?\d+(?:\.\d+)?)(?=%?(?:,|\s*$))")
_RETRACTED = re.compile(r"#retracted_reqs: (\d+)")
_LIMITS = re.compile(r"max_total_num_tokens=(\d+),.*max_running_requests=(\d+)")
_STARTED = re.compile(r"Engine startup timings \(s\): .*tokenizer_e2e=([\d.]+)")
_TAG = re.compile(r"([A-Z]+)(\d+)")


class SglangReader:
    def __init__(self) -> None:
        self.found = LogEntries()

    def read(self, number: int, line: str) -> bool:
        """Takes what the line tells; False where it tells nothing that is known here."""
        head = _HEAD.search(line)
        if head is None:
            return False
        ranks = dict(_TAG.findall(head["tags"]))
        text, time_s = head["text"].strip(), dated_s(head["stamp"])
        told = self._boot(text)
        if (batch := _BATCH.match(text)) is not None:
            told = any(int(ranks.get(name, 0)) for name in ("TP", "PP")) or self._batch(
                number, head["stamp"], time_s, f"DP{ranks['DP']}" if "DP" in ranks else "", batch
            )
        elif (retracted := _RETRACTED.search(text)) is not None:
            self.found.preempted.append(Preempted(number, time_s, int(retracted[1])))
            told = True
        self.found.read += told
        return told

    def _batch(self, number: int, stamp: str, time_s: float | None, engine: str, batch: re.Match[str]) -> bool:
        parts = {name: float(value) for name, value in _PART.findall(batch["parts"])}
        if "#running-req" not in parts:
            return False
        hit_rate = parts.get("cache hit rate")  # percent, of early versions
        self.found.samples.append(
            LogSample(
                line=number,
                stamp=stamp,
                time_s=time_s,
                kind=Kind.DECODE if batch["kind"] == "Decode" else Kind.PREFILL,
                engine=engine,
                prompt_tok_s=parts.get("input throughput (token/s)"),
                generation_tok_s=parts.get("gen throughput (token/s)"),
                running=int(parts["#running-req"]),
                waiting=_whole(parts.get("#queue-req")),
                kv_usage=parts.get("token usage", parts.get("full token usage")),
                prefix_hit_rate=None if hit_rate is None else hit_rate / 100,
                new_tokens=_whole(parts.get("#new-token")),
                cached_tokens=_whole(parts.get("#cached-token")),
                accept_len=parts.get("accept len"),
                accept_rate=parts.get("accept rate"),
            )
        )
        return True

    def _boot(self, text: str) -> bool:
        if (limits := _LIMITS.search(text)) is not None:
            boot = self.found.boot(new=True)
            boot.kv_tokens, boot.max_running = int(limits[1]), int(limits[2])
            return True
        if (started := _STARTED.search(text)) is not None:
            self.found.boot().init_s = float(started[1])
            return True
        return False


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
