"""What a search for the highest load found: from the verdicts on its levels, and from why the run says it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.level_verdicts import LevelJudgement
from tokenswarm.level_verdict import Judgement
from tokenswarm.search import Ended

STOPPED = "stopped"


@dataclass(frozen=True)
class SearchResult:
    """``steps`` in the order in which they ran. ``best``: the highest load that meets everything; ``first_bad``: the
    lowest above it that does not. ``ended``: one of ``search.Ended``, or ``stopped``; ``reason`` in words."""

    of_users: bool
    steps: tuple[LevelJudgement, ...]
    best: LevelJudgement | None
    first_bad: LevelJudgement | None
    ended: str
    reason: str

    @property
    def doubt(self) -> str | None:
        """Why the search found no answer."""
        unsure = self.ended in (Ended.UNDECIDED, STOPPED)
        return f"the search is undecided: {self.reason}" if unsure else None


def search_result(search: dict[str, Any], steps: Sequence[LevelJudgement]) -> SearchResult:
    """``search``: the ``search.json`` of the run, empty where it was not written."""
    met = [one for one in steps if one.judgement == Judgement.MET and one.load is not None]
    best = max(met, key=lambda one: one.load or 0.0, default=None)
    least = 0.0 if best is None else best.load or 0.0
    missed = [one for one in steps if one.judgement == Judgement.MISSED and (one.load or 0.0) > least]
    return SearchResult(
        of_users=not any(one.label.endswith("/s") or "/s #" in one.label for one in steps),
        steps=tuple(steps),
        best=best,
        first_bad=min(missed, key=lambda one: one.load or 0.0, default=None),
        ended=str(search.get("ended") or STOPPED),
        reason=str(search.get("reason") or "the run ended before the search"),
    )
