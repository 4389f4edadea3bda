"""Lines of vLLM's log: V0 and V1, with and without the process in front, one engine or several.

Known are the line about the load, the V0 line with the prefix cache's hit rate, those about speculative decoding and
preemption, and what the engine says when it starts. Idle intervals are not printed at all, and a part that a version
does not print is unknown: V1 tells preemptions in its log hardly ever, on ``/metrics`` always.
"""

from __future__ import annotations

import re

from analysis.log_entries import Drafting, Kind, LogEntries, LogSample, Preempted
from analysis.log_stamps import undated_s

_HEAD = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR) +(?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?) +\[?[\w./-]+(?::\d+)?\] ?"
    r"(?P<text>.*)"
)
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_PART = re.compile(rf"([A-Za-z][\w ]*?): ({_NUMBER}) ?(?:tokens/s|tokens|reqs|%)?(?=,|\.?\s*$)")
_LOAD = re.compile(r"(?:Engine (?P<engine>\d+): |(?P<all>\d+) Engines Aggregated: )?Avg prompt throughput: ")
_HIT_RATE = re.compile(r"Prefix cache hit rate: GPU: (-?[\d.]+)%")  # -1: no cache
_PREEMPTED = re.compile(r"Sequence group \S+ is preempted\b")
_V0_DRAFTS = "Speculative metrics: "
_V1_DRAFTS = "SpecDecoding metrics: "

_VERSION = re.compile(r"Initializing an? (?:V\d )?LLM engine \(v?([\w.+-]+)\)|version ([\d][\w.+-]*)\s*$")
_KV_TOKENS = re.compile(rf"[CGX]PU KV cache size: ({_NUMBER}) tokens")
_KV_MEMORY = re.compile(rf"Available KV cache memory: ({_NUMBER}) GiB")
_CONCURRENCY = re.compile(rf"Maximum concurrency for ({_NUMBER}) tokens per request: ({_NUMBER})x")
_INIT = re.compile(rf"init engine \(.*\) took ({_NUMBER}) ?s")


class VllmReader:
    """``near_s``: a moment near which the log was written, seconds since 1970: stamps have no year."""

    def __init__(self, near_s: float | None = None) -> None:
        self.found = LogEntries()
        self._near_s = near_s

    def read(self, number: int, line: str) -> bool:
        """Takes what the line tells; False where it tells nothing that is known here."""
        head = _HEAD.search(line)
        if head is None:
            return False
        stamp, text = head["stamp"], head["text"].strip()
        time_s = undated_s(stamp, self._near_s)
        told = (
            self._load(number, stamp, time_s, text)
            or self._hit_rate(stamp, text)
            or self._drafting(number, time_s, text)
            or self._preempted(number, time_s, text)
            or self._boot(text)
        )
        self.found.read += told
        return told

    def _load(self, number: int, stamp: str, time_s: float | None, text: str) -> bool:
        head = _LOAD.match(text)
        if head is None:
            return False
        parts = _parts(text[text.index("Avg prompt") :])
        if "Avg generation throughput" not in parts or "Running" not in parts:
            return False
        gpu, cpu = parts.get("GPU KV cache usage"), parts.get("CPU KV cache usage")
        self.found.samples.append(
            LogSample(
                line=number,
                stamp=stamp,
                time_s=time_s,
                kind=Kind.INTERVAL,
                engine=head["engine"] or (f"all {head['all']}" if head["all"] else ""),
                prompt_tok_s=parts.get("Avg prompt throughput"),
                generation_tok_s=parts["Avg generation throughput"],
                running=round(parts["Running"]),
                waiting=_whole(parts.get("Waiting", parts.get("Pending"))),
                swapped=_whole(parts.get("Swapped")),
                preemptions=_whole(parts.get("Preemptions")),
                kv_usage=_share(cpu if gpu is None else gpu),
                prefix_hit_rate=_share(parts.get("Prefix cache hit rate")),
                external_hit_rate=_share(parts.get("External prefix cache hit rate")),
                mm_hit_rate=_share(parts.get("MM cache hit rate")),
            )
        )
        return True

    def _hit_rate(self, stamp: str, text: str) -> bool:
        """V0 prints it on a line of its own, right below that about the load."""
        found = _HIT_RATE.match(text)
        if found is None:
            return False
        rate = float(found[1])
        last = self.found.samples[-1] if self.found.samples else None
        if last is not None and last.stamp == stamp and rate >= 0:
            last.prefix_hit_rate = rate / 100
        return True

    def _drafting(self, number: int, time_s: float | None, text: str) -> bool:
        if not text.startswith((_V0_DRAFTS, _V1_DRAFTS)):
            return False
        parts = _parts(text.partition(": ")[2])
        old = text.startswith(_V0_DRAFTS)
        percent = parts.get("Avg Draft acceptance rate", parts.get("Draft acceptance rate"))
        self.found.drafting.append(
            Drafting(
                number,
                time_s,
                # V0's counts are totals since the engine's start; its rate is that of the moment.
                accepted=None if old else _whole(parts.get("Accepted")),
                drafted=None if old else _whole(parts.get("Drafted")),
                rate=percent if old else _share(percent),
                mean_length=parts.get("Mean acceptance length"),
            )
        )
        return True

    def _preempted(self, number: int, time_s: float | None, text: str) -> bool:
        if not _PREEMPTED.match(text):
            return False
        self.found.preempted.append(Preempted(number, time_s, 1))
        return True

    def _boot(self, text: str) -> bool:
        version = _VERSION.search(text)
        if version is not None:
            name = version[1] or version[2]
            last = self.found.boots[-1] if self.found.boots else None
            again = last is not None and last.init_s is not None  # one start tells its version more than once
            self.found.boot(new=again).version = name
        return any([_boot_size(self.found, text), version is not None])


def _boot_size(found: LogEntries, text: str) -> bool:
    told = False
    if match := _KV_TOKENS.search(text):
        found.boot().kv_tokens, told = round(_value(match[1])), True
    if match := _KV_MEMORY.search(text):
        found.boot().kv_memory_gib, told = _value(match[1]), True
    if match := _CONCURRENCY.search(text):
        boot = found.boot()
        boot.max_concurrency_tokens, boot.max_concurrency, told = round(_value(match[1])), _value(match[2]), True
    if match := _INIT.search(text):
        found.boot().init_s, told = _value(match[1]), True
    return told


def _parts(text: str) -> dict[str, float]:
    return {name.strip(): _value(value) for name, value in _PART.findall(text)}


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
