"""Samples of the engines under load, taken while a run goes on: see ``engine_metrics`` for what is in one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter
from typing import Any, Literal

import gevent
import msgspec

from tokenswarm.engine_metrics import EngineSample, parse_metrics
from tokenswarm.errors import TargetError, TokenswarmError

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
_LIMIT_S = 2.5  # for a page, however slowly it drips
_LARGEST_PAGE = 4_000_000  # bytes: read in the process that makes the load
_SETTLE_S = 0.1
_SETTLE_READS = 3  # at the end of a level, while the engine still counts a request as running
_NO_PAGE = "no engine samples: the server has no /metrics; SGLang needs --enable-metrics, llama.cpp --metrics"


class EngineSampler:
    """Reads the engines' page at the edges of each level and every few seconds between; rows go to ``write``.

    ``get`` fetches the page: status and body; it is stopped after ``_LIMIT_S`` seconds, and may raise ``OSError`` or a
    ``TokenswarmError``. Whatever fails is told once, in the log and as ``note``, and the run goes on. ``clock`` gives
    seconds on the master's monotonic clock; a row bears the middle of its request.
    """

    def __init__(
        self,
        get: Callable[[], tuple[int, bytes]],
        write: Callable[[dict[str, Any]], None],
        clock: Callable[[], float] = perf_counter,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self.note: str | None = None  # why samples are missing, in one line
        self._get = get
        self._write = write
        self._clock = clock
        self._interval_s = interval_s
        self._missing = False  # the server has no such page: it is not asked again
        self._seen = False  # it has had one
        self._between: gevent.Greenlet | None = None

    def edge(self, level: int | None, edge: Literal["start", "end"]) -> None:
        """Sample now, at the beginning or end of a level (None: of a free-running load), and between the two."""
        self.stop()
        self._sample(level, edge)
        if edge == "start" and not self._missing:
            self._between = gevent.spawn(self._sample_between, level)

    def stop(self) -> None:
        """Stop sampling; harmless when nothing runs."""
        if self._between is not None:
            self._between.kill(block=False)
            self._between = None

    def _sample_between(self, level: int | None) -> None:
        while not self._missing:
            gevent.sleep(self._interval_s)
            self._sample(level, None)

    def _sample(self, level: int | None, edge: str | None) -> None:
        for attempt in range(_SETTLE_READS):
            time_s, samples = self._read()
            if edge != "end" or attempt + 1 == _SETTLE_READS or not any(sample.running for sample in samples):
                break
            gevent.sleep(_SETTLE_S)
        for sample in samples:
            self._write({"time_s": time_s, "level": level, "edge": edge, **msgspec.structs.asdict(sample)})

    def _read(self) -> tuple[float, list[EngineSample]]:
        if self._missing:
            return 0.0, []
        before_s = self._clock()
        try:
            with gevent.Timeout(_LIMIT_S, TargetError(f"/metrics did not come within {_LIMIT_S:g} s")):
                status, body = self._get()
        except (OSError, TokenswarmError) as error:
            self._tell(f"engine samples are missing: {error}")
            return before_s, []
        time_s = (before_s + self._clock()) / 2
        if len(body) > _LARGEST_PAGE:
            self._missing = True
            self._tell(f"no engine samples: /metrics has {len(body)} bytes, more than can be read beside a load")
            return time_s, []
        samples = parse_metrics(body.decode("utf-8", "replace")) if status == 200 else []
        self._seen = self._seen or bool(samples)
        if not samples:
            self._missing = status in (200, 401, 403, 404, 405) and not self._seen
            self._tell(_refusal(status))
        return time_s, samples

    def _tell(self, note: str) -> None:
        if self.note is None:
            self.note = note
            log.warning("%s", note)


def _refusal(status: int) -> str:
    match status:
        case 200:
            return "no engine samples: /metrics shows no engine that is known here (vLLM, SGLang, llama.cpp, TGI)"
        case 404 | 405:
            return _NO_PAGE
        case _:
            return f"engine samples are missing: /metrics answered {status}"
