"""The engine's own figures of each level as people read them, from its counters and from its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis.columns import texts_of
from analysis.engine_concerns import Concern
from analysis.figures import BLANK, Figure
from analysis.levels import LevelRow
from analysis.log_levels import LogLevel
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.reconcile import Closing, ServerView
from analysis.tables import TextTable, level_cell, load_title

TITLE = "Server's view"
LOG_TITLE = "Server's log"
RECENT = (
    "hit rates of the log are over the last 1,000 requests at the end of the level, not over the level: an "
    "approximation; the counters on /metrics tell the level's own"
)
_NEXT_STEP: dict[Closing, str] = {
    Closing.OTHERS: "Keep others off the server while measuring, health checks that generate tokens included",
    Closing.ELSEWHERE: "Measure one replica directly, without a gateway that balances, retries or answers by itself",
    Closing.TOKENS_OPEN: "Ask whether a gateway rewrites usage, and whether prompts or answers are counted twice",
}
# Title, figure, factor, decimals.
_Columns = tuple[tuple[str, Callable[[ServerView], float | None], float, int], ...]
_COUNTED: _Columns = (
    ("requests", lambda view: view.requests.engine, 1.0, 0),
    ("output tokens", lambda view: view.generation_tokens.engine, 1.0, 0),
    ("TTFT mean ms", lambda view: view.client_ttft_s, 1e3, 0),
    ("server TTFT ms", lambda view: view.server_ttft_s, 1e3, 0),
    ("queue ms", lambda view: view.queue_s, 1e3, 0),
    ("prefill ms", lambda view: view.prefill_s, 1e3, 0),
    ("unexplained ms", lambda view: view.unexplained_s, 1e3, 0),
    ("decode s", lambda view: view.window.means.get("decode"), 1.0, 1),
    ("running mean", lambda view: view.running_mean, 1.0, 1),
    ("waiting max", lambda view: view.waiting_max, 1.0, 0),
    ("KV max %", lambda view: view.kv_usage_max, 1e2, 1),
    ("preemptions", lambda view: view.preemptions, 1.0, 0),
    ("drafts accepted %", lambda view: view.accept_rate, 1e2, 1),
)
_LOGGED: tuple[tuple[str, str, float, int], ...] = (
    ("lines", "moments", 1.0, 0),
    ("generation tok/s", "generation_tok_s", 1.0, 1),
    ("running mean", "running_mean", 1.0, 1),
    ("waiting mean", "waiting_mean", 1.0, 1),
    ("waiting max", "waiting_max", 1.0, 0),
    ("KV max %", "kv_usage_max", 1e2, 1),
    ("preemptions", "preemptions", 1.0, 0),
    ("prompt cached %", "cached_share", 1e2, 1),
    ("prefix hits ~%", "prefix_hit_rate", 1e2, 1),
    ("MM hits ~%", "mm_hit_rate", 1e2, 1),
    ("drafts accepted %", "accept_rate", 1e2, 1),
    ("tokens a step", "accept_len", 1.0, 2),
)


def server_blocks(outcome: Outcome) -> list[Part]:
    """Nothing where the engine was not sampled."""
    views = outcome.server
    if not views:
        return []
    columns = [(title, [_of(read(view), by) for view in views], places) for title, read, by, places in _COUNTED]
    verdicts = [str(view.closing) for view in views]
    table = _table("server", TITLE, [view.row for view in views], columns, ("counts", verdicts))
    lines = _grouped([(view.row, _line(view)) for view in views])
    return [Part(TITLE, table, lines + _grouped([(view.row, one.text) for view in views for one in view.concerns]))]


def log_part(levels: list[LogLevel]) -> Part:
    """The levels as the log shows them, with what gives reason to look."""
    rows = [level.row for level in levels]
    in_flight = [_of(row.figure("in_flight_mean").value, 1.0) for row in rows]
    columns = [
        (title, [_of(getattr(level, name), by) for level in levels], places) for title, name, by, places in _LOGGED
    ]
    columns.insert(3, ("in flight", in_flight, 1))
    concerns: list[tuple[LevelRow, Concern]] = [(level.row, one) for level in levels for one in level.concerns]
    lines = _grouped([(row, one.text) for row, one in concerns])
    if any(level.prefix_hit_rate is not None or level.mm_hit_rate is not None for level in levels):
        lines.append(RECENT)
    if silent := [level.row.name for level in levels if not level.moments]:
        lines.append(f"no line of the log in the measured time of {', '.join(silent)}")
    return Part(LOG_TITLE, _table("server log", LOG_TITLE, rows, columns, None), lines)


def _table(
    key: str,
    title: str,
    rows: Sequence[LevelRow],
    columns: Sequence[tuple[str, list[Figure], int]],
    verdicts: tuple[str, list[str]] | None,
) -> TextTable:
    """Columns without any figure are left out."""
    shown = [(name, texts_of(figures, places)) for name, figures, places in columns]
    shown = [(name, texts) for name, texts in shown if any(texts)] + ([verdicts] if verdicts else [])
    header = [load_title(rows), *(name for name, _ in shown)]
    body = [[level_cell(row), *(texts[i] for _, texts in shown)] for i, row in enumerate(rows)]
    return TextTable(key, title, header, body, left=frozenset({len(header) - 1} if verdicts else set()))


def _of(value: float | None, by: float) -> Figure:
    return BLANK if value is None else Figure(value * by)


def _line(view: ServerView) -> str:
    match view.closing:
        case Closing.CLOSES:
            return view.finding
        case Closing.UNKNOWN:
            return f"not compared with the client: {view.why}"
        case closing:
            return f"{closing}: {view.why}; nothing else is concluded. {_NEXT_STEP[closing]}"


def _grouped(told: list[tuple[LevelRow, str]]) -> list[str]:
    """A line for each text, with the levels that have it."""
    levels: dict[str, list[str]] = {}
    for row, text in told:
        if text:
            levels.setdefault(text, []).append("the whole run" if row.level is None else row.name)
    return [f"{', '.join(names)}: {text}" for text, names in levels.items()]
