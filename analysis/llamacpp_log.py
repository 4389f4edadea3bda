"""Lines of llama.cpp's server: requests that took a slot, what each one took, and what the server says when it starts.

There is no line about the load as a whole; how many requests ran follows from the slots taken and released. Stamps
count from the start of the process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from analysis.log_entries import Kind, LogEntries, LogSample
from analysis.log_stamps import uptime_s

_HEAD = re.compile(r"(?P<stamp>\d+\.\d\d\.\d{3}\.\d{3}) [DIWE] (?P<who>\w+) +(?P<what>[\w()]+): (?P<text>.*)")
_TASK = re.compile(r"id +(?P<slot>\d+) \| task (?P<task>-?\d+) \| (?P<text>.*)")
_TIMING = re.compile(r"(?P<what>prompt eval|eval|total) time = +(?P<ms>[\d.]+) ms / +(?P<tokens>\d+) tokens")
_SLOTS = re.compile(r"initializing, n_slots = (\d+)")
_BUILD = re.compile(r"build_info: (\S+)")


@dataclass
class _Task:
    stamp: str
    begun_s: float | None
    line: int
    prompt_ms: float | None = None
    prompt_tokens: int | None = None
    decode_ms: float | None = None
    output_tokens: int | None = None


class LlamacppReader:
    def __init__(self) -> None:
        self.found = LogEntries()
        self._tasks: dict[int, _Task] = {}  # by slot

    def read(self, number: int, line: str) -> bool:
        """Takes what the line tells; False where it tells nothing that is known here."""
        head = _HEAD.match(line)
        if head is None:
            return False
        task = _TASK.match(head["text"]) if head["who"] == "slot" else None
        told = self._boot(head["text"]) if task is None else self._slot(number, head, task)
        self.found.read += told
        return told

    def _slot(self, number: int, head: re.Match[str], task: re.Match[str]) -> bool:
        slot, text = int(task["slot"]), task["text"].strip()
        if text.startswith("processing task"):
            self._tasks[slot] = _Task(head["stamp"], uptime_s(head["stamp"]), number)
            return True
        if slot in self._tasks and (timing := _TIMING.match(text)) is not None:
            _keep(self._tasks[slot], timing)
            return True
        if text.startswith("stop processing") and slot in self._tasks:
            self._ended(number, head["stamp"], self._tasks.pop(slot))
            return True
        return False

    def _ended(self, number: int, stamp: str, task: _Task) -> None:
        time_s = uptime_s(stamp)
        known = time_s is not None and task.begun_s is not None
        self.found.samples.append(
            LogSample(
                line=number,
                stamp=stamp,
                time_s=time_s,
                kind=Kind.REQUEST,
                prompt_tok_s=_rate(task.prompt_tokens, task.prompt_ms),
                generation_tok_s=_rate(task.output_tokens, task.decode_ms),
                running=len(self._tasks) + 1,
                new_tokens=task.prompt_tokens,
                output_tokens=task.output_tokens,
                busy_s=(time_s or 0.0) - (task.begun_s or 0.0) if known else None,
            )
        )

    def _boot(self, text: str) -> bool:
        if (build := _BUILD.search(text)) is not None:
            self.found.boot(new=True).version = build[1]
            return True
        if (slots := _SLOTS.search(text)) is not None:
            self.found.boot().max_running = int(slots[1])
            return True
        return False


def _keep(task: _Task, timing: re.Match[str]) -> None:
    ms, tokens = float(timing["ms"]), int(timing["tokens"])
    match timing["what"]:
        case "prompt eval":
            task.prompt_ms, task.prompt_tokens = ms, tokens
        case "eval":
            task.decode_ms, task.output_tokens = ms, tokens


def _rate(tokens: int | None, ms: float | None) -> float | None:
    return None if tokens is None or not ms else tokens / ms * 1000
