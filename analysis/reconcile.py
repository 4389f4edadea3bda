"""Holds what the client saw of a level against what the engine counted of it, over the same requests.

The window reaches from the sample before the level's first request to that after its last one, so that every request
of the level counts, whatever its phase. Times are compared on means: a histogram's sum and count give nothing else
exactly. Queue + prefill + unexplained = the client's TTFT. Tokens and requests must close, else others use the server,
or not all of ours reached it; then nothing else is concluded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

import pandas as pd

from analysis import window as windows
from analysis.engine_concerns import Concern, log_concerns
from analysis.engine_window import Counting, EngineWindow, engine_window
from analysis.figures import ratio
from analysis.levels import LevelRow
from analysis.run_folder import Run
from tokenswarm.records import Phase, TokenSource

NOTEWORTHY_S = 0.010  # of a TTFT that nothing explains, or
NOTEWORTHY_SHARE = 0.05  # so much of it: the larger one
TOKENS_CLOSE = 0.002  # of the tokens: what a server counts that its answers do not tell


class Closing(StrEnum):
    """What the counts of both sides say about each other."""

    CLOSES = "closes"
    OTHERS = "others used the server"
    ELSEWHERE = "not all requests reached this engine"
    TOKENS_OPEN = "tokens do not close"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Both:
    """A count of the engine, and the least and most that the client's rows allow: they differ by the requests that were
    cut, of which nobody knows how far they had come. None: not told."""

    engine: float | None
    least: float | None
    most: float | None

    @property
    def excess(self) -> float | None:
        """How far the engine's count lies above (or, negative, below) what the client allows; 0 inside."""
        if self.engine is None or self.least is None or self.most is None:
            return None
        return max(0.0, self.engine - self.most) or min(0.0, self.engine - self.least)


@dataclass(frozen=True)
class ServerView:
    """One level. Times are means in seconds; ``client_ttft_s`` is over the requests that got a first token,
    ``client_e2e_s`` over those that ended well.

    ``frontend_s``: of the unexplained, what the engine itself counts into its TTFT (parsing, tokenisation, handing
    over); ``beyond_s``: what lies outside of it, negative where the engine stamps later than the client.
    """

    row: LevelRow
    window: EngineWindow
    closing: Closing
    why: str
    requests: Both
    generation_tokens: Both
    prompt_tokens: Both
    client_ttft_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    unexplained_s: float | None = None
    frontend_s: float | None = None
    beyond_s: float | None = None
    client_lag_s: float | None = None
    client_e2e_s: float | None = None
    finding: str = ""
    concerns: list[Concern] = field(default_factory=list)

    @property
    def accept_rate(self) -> float | None:
        return ratio(self.window.totals.get("accepted_tokens"), self.window.totals.get("draft_tokens"))

    @property
    def server_ttft_s(self) -> float | None:
        """From the arrival of the request, by the engine's histogram."""
        return self.window.means.get("ttft") if self.closing == Closing.CLOSES else None

    # What the concerns rest on.
    @property
    def moments(self) -> int:
        return self.window.samples

    @property
    def running_mean(self) -> float | None:
        return self.window.running_mean

    @property
    def waiting_mean(self) -> float | None:
        return self.window.waiting_mean

    @property
    def waiting_max(self) -> float | None:
        return self.window.waiting_max

    @property
    def waiting_share(self) -> float | None:
        return self.window.waiting_share

    @property
    def kv_usage_max(self) -> float | None:
        return self.window.kv_usage_max

    @property
    def preemptions(self) -> int | None:
        total = self.window.totals.get("preemptions")
        return None if total is None else round(total)


def server_views(run: Run, rows: list[LevelRow]) -> list[ServerView]:
    """Of each level that the engine was sampled in."""
    views: list[ServerView] = []
    for row in rows if len(run.engine) else []:
        level = run.requests["level"]
        mine = run.requests[level.isna() if row.level is None else level == row.level]
        measured = windows.window_of(mine[mine["phase"] == Phase.MEASURED])
        window = engine_window(run.engine, row.level, measured)
        if window is not None:
            views.append(_view(row, window, mine))
    return views


def _view(row: LevelRow, window: EngineWindow, rows: pd.DataFrame) -> ServerView:
    sent = rows[rows["sent_s"].notna()]
    good, cut = sent[sent["error_kind"].isna()], sent[sent["error_kind"].notna()]
    totals = window.totals
    requests = Both(totals.get("requests_ok"), float(len(good)), float(len(sent)))
    generation = _generated(totals.get("generation_tokens"), good, cut)
    prompt = _prompts(totals.get("prompt_tokens"), good, cut)
    closing, why = _closing(window, requests, generation, prompt)
    view = ServerView(row, window, closing, why, requests, generation, prompt)
    if closing == Closing.CLOSES:
        view = _explained(view, sent)
    view.concerns.extend(log_concerns(view))
    return view


def _generated(engine: float | None, good: pd.DataFrame, cut: pd.DataFrame) -> Both:
    """Of requests that were cut the engine made at least what came, and at most what was asked for."""
    told = good["output_tokens"].where(good["token_source"] == TokenSource.USAGE)
    if told.isna().any():
        return Both(engine, None, None)
    came = cut["output_tokens"].where(cut["token_source"] == TokenSource.USAGE, cut["chunks"]).fillna(0.0)
    most = pd.concat([cut["asked_output_tokens"], came], axis=1).max(axis=1, skipna=False)
    sure = float(told.sum())
    return Both(engine, sure + float(came.sum()), None if most.isna().any() else sure + float(most.sum()))


def _prompts(engine: float | None, good: pd.DataFrame, cut: pd.DataFrame) -> Both:
    """Nobody knows of a request that was cut whether its prompt was counted; with the template's tokens it is at most
    so much longer than asked as that of a good one."""
    told = good["prompt_tokens"]
    if told.isna().any():
        return Both(engine, None, None)
    sure = float(told.sum())
    if cut.empty:
        return Both(engine, sure, sure)
    most = cut["prompt_tokens"].fillna(cut["asked_input_tokens"] + (told - good["asked_input_tokens"]).max())
    return Both(engine, sure, None if most.isna().any() else sure + float(most.sum()))


def _closing(window: EngineWindow, requests: Both, generation: Both, prompt: Both) -> tuple[Closing, str]:
    """The verdict on the counts, and in a few words why."""
    if window.counting != Counting.WHOLE:
        return Closing.UNKNOWN, _WHY_NOT[window.counting]
    counts = (
        ("requests", requests, 0.0),
        ("generated tokens", generation, TOKENS_CLOSE),
        ("prompt tokens", prompt, TOKENS_CLOSE),
    )
    known = [(name, both, share) for name, both, share in counts if both.excess is not None]
    if not known:
        return Closing.UNKNOWN, "the engine does not tell its counts, or the answers do not tell theirs"
    for name, both, share in known:
        excess, most = both.excess or 0.0, both.most or 0.0
        if abs(excess) <= share * most:
            continue
        seen = f"the engine counted {both.engine:.0f} {name}, our requests make {_range(both)}"
        if name != "requests" and requests.excess is not None:
            return Closing.TOKENS_OPEN, seen
        return (Closing.OTHERS if excess > 0 else Closing.ELSEWHERE), seen
    return Closing.CLOSES, ""


_WHY_NOT: dict[Counting, str] = {
    Counting.NO_EDGES: "the engine was not sampled at both ends of the level",
    Counting.RESTARTED: "the engine's process, or its counters, began anew within the level; its log tells why",
    Counting.REPLICAS: (
        "several replicas answered behind this URL, their counters cannot be subtracted; measure one of them directly"
    ),
}


def _range(both: Both) -> str:
    least, most = both.least or 0.0, both.most or 0.0
    return f"{most:.0f}" if least == most else f"{least:.0f} to {most:.0f}"


def _explained(view: ServerView, sent: pd.DataFrame) -> ServerView:
    """Where the client's TTFT went, on means."""
    means = view.window.means
    client = _mean(sent["ttft_s"])
    queue, prefill, server = (means.get(name) for name in ("queue", "prefill", "ttft"))
    inside = None if queue is None or prefill is None else queue + prefill
    unexplained = None if client is None or inside is None else client - inside
    beyond = None if server is None or client is None else client - server
    lag = _lag_s(sent)
    return replace(
        view,
        client_ttft_s=client,
        queue_s=queue,
        prefill_s=prefill,
        unexplained_s=unexplained,
        frontend_s=None if server is None or inside is None else server - inside,
        beyond_s=beyond,
        client_lag_s=lag,
        client_e2e_s=_mean(sent.loc[sent["error_kind"].isna(), "e2e_s"]),
        finding=_finding(unexplained, beyond, client, lag),
    )


def _mean(column: pd.Series[float]) -> float | None:
    known = column.dropna()
    return float(known.mean()) if len(known) else None


def _lag_s(sent: pd.DataFrame) -> float | None:
    """What late reading can have added to a TTFT; nothing where the kernel stamped the bytes."""
    if sent["clock"].notna().any() and set(sent["clock"].dropna().unique()) == {"kernel"}:
        return 0.0
    lags = sent["lag_max_s"].dropna()
    return float(lags.quantile(0.95)) if len(lags) else None


def _finding(unexplained: float | None, beyond: float | None, client: float | None, lag: float | None) -> str:
    """``unexplained`` where the engine tells queue and prefill, else ``beyond``: what lies outside its own TTFT."""
    open_s = beyond if unexplained is None else unexplained
    if open_s is None or client is None:
        return ""
    allowed = (lag or 0.0) + max(NOTEWORTHY_S, NOTEWORTHY_SHARE * client)
    if open_s > allowed:
        what = "outside the engine" if unexplained is None else "neither queue nor prefill"
        causes = "network or proxy" if unexplained is None else "network, proxy or tokenisation"
        return (
            f"{open_s * 1000:.0f} ms of the mean TTFT are {what}, more than the client's lag: {causes} may be the cause"
        )
    if open_s < -allowed:
        return (
            "the engine counts more time before the first token than the client waited: its histograms are of other "
            "requests than these"
        )
    return ""
