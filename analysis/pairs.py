"""The pairs of a prefix-cache test: two sessions with the same text, of which only one could find others' prompts."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from tokenswarm.arms import COLD, WARM
from tokenswarm.errors import ErrorKind
from tokenswarm.records import Phase

# What is compared, one value a session in seconds, with its name for a person. A *job* is a whole session.
MEASURES: dict[str, str] = {
    "ttft": "TTFT",  # mean over the session's requests
    "first_ttft": "first TTFT",  # of the session's first request
    "e2e": "E2E",  # mean over the session's requests
    "job": "job time",  # first send to last finish, tools included
}
_KEY = ["pair", "turn"]


@dataclass(frozen=True)
class Sessions:
    """Measured sessions of one arm of a level, by how they went."""

    started: int
    failed: int  # a request failed
    cut: int  # ended by the end of the level or run


@dataclass(frozen=True)
class Pairs:
    """Pairs of one level whose sessions were both played to their end.

    ``cold`` and ``warm`` have one row a pair, in the order of the pairs, and the columns ``MEASURES`` in
    seconds; ``cold_requests`` and ``warm_requests`` one row a request (index pair and turn) of the turns that both
    sessions have, which are all where they took the same course.
    """

    cold: pd.DataFrame
    warm: pd.DataFrame
    cold_requests: pd.DataFrame
    warm_requests: pd.DataFrame
    sessions: dict[str, Sessions]
    incomplete: int  # pairs of which at least one session was not played to its end
    failed_apart: tuple[int, int]  # pairs in which only the cold, only the warm session failed
    uneven: int  # pairs, complete, whose sessions have different numbers of requests

    def __len__(self) -> int:
        return len(self.cold)

    @property
    def several_requests(self) -> bool:
        """Whether any session has more than one."""
        return bool((self.cold_requests.index.get_level_values("turn") > 0).any())

    def differences(self, measure: str) -> pd.Series[float]:
        """Cold minus warm in seconds, one a pair: what was saved."""
        return (self.cold[measure] - self.warm[measure]).dropna()


def pairs_of(rows: pd.DataFrame, *, silent_is_zero: bool = False) -> Pairs:
    """From the rows of one level, any phases among them; columns as ``read_requests`` gives them.

    ``silent_is_zero``: the server tells cached tokens, but leaves the number out where it is 0.
    """
    measured = rows[rows["phase"].eq(Phase.MEASURED) & rows["pair"].notna() & rows["arm"].isin((COLD, WARM))]
    if silent_is_zero:
        known = measured["cached_tokens"].fillna(0.0).where(measured["prompt_tokens"].notna())
        measured = measured.assign(cached_tokens=known)
    sessions = _sessions(measured)
    counts = {arm: _count(sessions[sessions["arm"] == arm]) for arm in (COLD, WARM)}
    sessions = sessions[~sessions.duplicated(["pair", "arm"])]
    arms = {arm: sessions[sessions["arm"] == arm].set_index("pair") for arm in (COLD, WARM)}
    both = arms[COLD].merge(arms[WARM], "outer", left_index=True, right_index=True, suffixes=("_cold", "_warm"))
    played = both.index[both["played_cold"].eq(True) & both["played_warm"].eq(True)]
    failed = both["failed_cold"].eq(True), both["failed_warm"].eq(True)
    chosen = measured[measured["pair"].isin(played)]
    cold, warm = (chosen[chosen["arm"] == arm].set_index(_KEY).sort_index() for arm in (COLD, WARM))
    common = cold.index.intersection(warm.index)
    cold_requests, warm_requests = cold.loc[common], warm.loc[common]
    return Pairs(
        cold=_per_pair(cold_requests, arms[COLD]),
        warm=_per_pair(warm_requests, arms[WARM]),
        cold_requests=cold_requests,
        warm_requests=warm_requests,
        sessions=counts,
        incomplete=len(both) - len(played),
        failed_apart=(int((failed[0] & ~failed[1]).sum()), int((failed[1] & ~failed[0]).sum())),
        uneven=int((both.loc[played, "requests_cold"] != both.loc[played, "requests_warm"]).sum()),
    )


def _sessions(measured: pd.DataFrame) -> pd.DataFrame:
    """One row a session; ``played`` to its end means that its last answer is a success and ended it. What stands twice
    in the rows, which are then those of two runs or damaged, was not.
    """
    facts = pd.DataFrame(
        {
            "session": measured["session"].astype("object"),
            "pair": measured["pair"].astype("int64"),
            "arm": measured["arm"].astype("object"),
            "ended": measured["session_end"].notna() & measured["error_kind"].isna(),
            "failed": measured["error_kind"].notna() & measured["error_kind"].ne(ErrorKind.CANCELLED),
            "sent_s": measured["sent_s"],
            "finished_s": measured["finished_s"],
            "twice": measured.duplicated(["session", "turn"]),
        }
    )
    sessions = facts.groupby("session", sort=False).agg(
        pair=("pair", "first"),
        arm=("arm", "first"),
        ended=("ended", "any"),
        failed=("failed", "any"),
        requests=("ended", "size"),
        sent_s=("sent_s", "min"),
        finished_s=("finished_s", "max"),
        twice=("twice", "any"),
    )
    twice = sessions["twice"] | sessions.duplicated(["pair", "arm"], keep=False)
    sessions["played"] = sessions["ended"] & ~sessions["failed"] & ~twice
    sessions["job"] = sessions["finished_s"] - sessions["sent_s"]
    return sessions


def _count(sessions: pd.DataFrame) -> Sessions:
    failed = int(sessions["failed"].sum())
    return Sessions(len(sessions), failed, len(sessions) - failed - int(sessions["played"].sum()))


def _per_pair(requests: pd.DataFrame, sessions: pd.DataFrame) -> pd.DataFrame:
    """The measures of one arm, index ``pair``."""
    by_pair = requests.groupby(level="pair", sort=True)
    first = requests[requests.index.get_level_values("turn") == 0].droplevel("turn")
    table = pd.DataFrame(
        {
            "ttft": by_pair["ttft_s"].mean(),
            "first_ttft": first["ttft_s"],
            "e2e": by_pair["e2e_s"].mean(),
        }
    )
    table["job"] = sessions["job"].reindex(table.index)
    return table
