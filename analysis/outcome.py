"""What one run came to, from whichever source it was read: the single thing that is rendered and judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from analysis.audit_concern import Concern
from analysis.figures import BLANK, Figure
from analysis.levels import LevelRow
from analysis.reconcile import ServerView
from analysis.steps import ContextRow, StepRow


@dataclass(frozen=True)
class Note:
    """A footnote. ``key`` is stable for programs, ``text`` is for people.

    A ``detail`` says nothing special about this run: tables for people leave it out unless asked.
    """

    key: str
    text: str
    detail: bool = False


@dataclass(frozen=True)
class FailureGroup:
    """Failures of one kind; at most a few shortened samples of their texts."""

    kind: str
    count: int
    samples: tuple[str, ...]


@dataclass(frozen=True)
class ColdStart:
    """The first request of the run, a result of its own."""

    phase: str
    traffic: str
    concurrency: int | None
    error_kind: str | None
    ttft_s: float | None
    e2e_s: float | None
    later_ttft_s: Figure  # median of the measured requests of the same level, to compare with
    label: str = ""  # of the level


@dataclass(frozen=True)
class WarmupRow:
    """Warm-up requests of one level, kept apart from the measured ones."""

    concurrency: int | None
    requests: int
    failed: int
    ttft_mean_s: Figure
    ttft_max_s: float | None
    e2e_mean_s: Figure
    label: str = ""  # of the level


@dataclass
class NameRow:
    """One row of the statistics of a locustfile that is not ours. Times are seconds, all as Locust wrote them."""

    kind: str  # Locust's Type: GET, POST, ...; empty for the total
    name: str
    requests: int
    failed: int
    is_total: bool = False
    figures: dict[str, Figure] = field(default_factory=dict)

    def figure(self, name: str) -> Figure:
        return self.figures.get(name, BLANK)


@dataclass
class Outcome:
    """Levels of our own runs are in ``levels`` and ``classes``; other locustfiles have ``names`` only."""

    path: str
    source: str  # "run folder", "requests.csv" or "Locust CSV"
    name: str
    simulated: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    scenario: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(
        default_factory=dict
    )  # why the search for the highest load ended; see tokenswarm.search
    levels: list[LevelRow] = field(default_factory=list)
    classes: list[LevelRow] = field(default_factory=list)
    names: list[NameRow] = field(default_factory=list)
    job_classes: list[str] = field(default_factory=list)  # whose sessions are worth a table of jobs
    steps: list[StepRow] = field(default_factory=list)  # of each level
    step_groups: list[StepRow] = field(default_factory=list)  # of each level, and where there are several of all
    contexts: list[ContextRow] = field(default_factory=list)
    cold_start: ColdStart | None = None
    warmup: list[WarmupRow] = field(default_factory=list)
    server: list[ServerView] = field(default_factory=list)  # of each level that the engine was sampled in
    failures: list[FailureGroup] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    concerns: list[Concern] = field(default_factory=list)  # of the audit, from single requests; see analysis.audit
    doubts: list[str] = field(default_factory=list)  # reasons why the run as a whole is not credible

    @property
    def several_classes(self) -> bool:
        return len({row.traffic for row in self.classes}) > 1

    @property
    def kinds(self) -> dict[str, str]:
        """Kind of each traffic class, by name."""
        traffic = self.scenario.get("traffic")
        classes = [item for item in traffic if isinstance(item, dict)] if isinstance(traffic, list) else []
        return {str(item.get("name")): str(item.get("kind") or "chat") for item in classes}
