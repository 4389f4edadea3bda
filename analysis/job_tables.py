"""Jobs as people read them: how many and how long, where their time goes, and what the cache does along their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from analysis.columns import texts_of
from analysis.figures import BLANK, Figure
from analysis.jobs import PARTS, JobState, LevelJobs, differing
from analysis.levels import LevelRow
from analysis.outcome import Outcome
from analysis.part import Part
from analysis.steps import ContextRow, StepRow
from analysis.tables import TextTable, level_cell, level_marks, load_title
from tokenswarm.records import Divergence


def job_blocks(outcome: Outcome) -> list[Part]:
    """Counts and durations, then the parts of a job's time; nothing where no session has more than one request.

    Where no class is an agent, jobs are called sessions.
    """
    rows = [row for row in outcome.classes if row.traffic in outcome.job_classes and row.jobs is not None]
    if not rows:
        return []
    counts, times = _counts(rows, outcome), _times(rows, outcome)
    return [Part(counts.title, counts, _lines(rows)), Part(times.title, times, [])]


def step_blocks(outcome: Outcome) -> list[Part]:
    """For each class of jobs, cached against eligible tokens by step, and TTFT by length of the context."""
    blocks = []
    marks = {row.level: level_marks(row) for row in outcome.levels}
    for traffic in outcome.job_classes:
        of_class = f": {traffic}" if len(outcome.job_classes) > 1 else ""
        groups = [row for row in outcome.step_groups if row.traffic == traffic]
        if any(row.eligible_tokens.value is not None for row in groups):
            title = f"Cached against eligible prompt tokens by step{of_class}"
            blocks.append(Part(title, _step_table(groups, title, marks), [_eligible(groups)]))
        contexts = [row for row in outcome.contexts if row.traffic == traffic]
        if contexts:
            title = f"TTFT by length of the prompt{of_class}"
            blocks.append(Part(title, _context_table(contexts, title, marks), []))
    return blocks


def figures_of_jobs(outcome: Outcome) -> list[Figure]:
    """The quantiles that these tables show."""
    rows = [row for row in outcome.classes if row.traffic in outcome.job_classes]
    durations = [row.figure(name) for row in rows for name in ("job_p50_s", "job_p95_s")]
    return durations + [pick(row) for row in outcome.contexts for _, pick in _QUANTILES]


def _identity(rows: Sequence[LevelRow], outcome: Outcome) -> tuple[list[str], list[list[str]]]:
    """Header and cells that name a row: the level, and the class where there are several."""
    if len(outcome.job_classes) == 1:
        return [load_title(rows)], [[level_cell(row) for row in rows]]
    return [load_title(rows), "class"], [[level_cell(row) for row in rows], [row.traffic or "" for row in rows]]


def _counts(rows: list[LevelRow], outcome: Outcome) -> TextTable:
    header, columns = _identity(rows, outcome)
    fixed = len(header)
    jobs = [row.jobs or LevelJobs({}) for row in rows]
    header.append("jobs" if _agents(outcome) else "sessions")
    columns.append([str(one.count) for one in jobs])
    for state, title in _STATES:
        counts = [one.states.get(state, 0) for one in jobs]
        if any(counts) or state == JobState.FAILED:
            header.append(title)
            columns.append([str(count) for count in counts])
    title = "Jobs" if _agents(outcome) else "Sessions"
    wanted = [(figure, name.replace("jobs", title.lower()), decimals) for figure, name, decimals in _DURATIONS]
    return _with_figures("jobs", title, header, columns, fixed, rows, wanted)


def _times(rows: list[LevelRow], outcome: Outcome) -> TextTable:
    header, columns = _identity(rows, outcome)
    noun = "job" if _agents(outcome) else "session"
    titles = _PART_TITLES if _agents(outcome) else _PART_TITLES | {"tools": "thinking s"}
    wanted = [("job_mean_s", f"{noun} s", 1)]
    wanted += [(f"job_{part}_mean_s", titles[part], 1) for part in PARTS]
    title = f"Where the time of a {noun} goes (means of the completed {noun}s)"
    return _with_figures("job time", title, header, columns, len(header), rows, wanted)


def _agents(outcome: Outcome) -> bool:
    """Whether any of the job classes is one of agents."""
    return any(outcome.kinds.get(traffic) == "agentic" for traffic in outcome.job_classes)


def _with_figures(
    key: str,
    title: str,
    header: list[str],
    columns: list[list[str]],
    fixed: int,
    rows: list[LevelRow],
    wanted: Sequence[tuple[str, str, int]],
) -> TextTable:
    """The columns, and behind them those figures that any row has."""
    for figure, name, decimals in wanted:
        figures = [row.figure(figure) for row in rows]
        if any(one.value is not None for one in figures):
            header.append(name)
            columns.append(texts_of(figures, decimals))
    body = [list(cells) for cells in zip(*columns, strict=True)]
    return TextTable(key, title, header, body, fixed, frozenset(range(1, fixed)))


def _lines(rows: list[LevelRow]) -> list[str]:
    """What became of tool calls and recordings, by class over all levels; and jobs that only a limit has ended."""
    lines = []
    for traffic in dict.fromkeys(row.traffic for row in rows):
        jobs = [row.jobs for row in rows if row.traffic == traffic and row.jobs is not None]
        limited = sum(one.states.get(JobState.STEP_LIMIT, 0) for one in jobs)
        if limited:
            all_jobs = sum(one.count for one in jobs)
            lines.append(f"{traffic}: {limited} of {all_jobs} jobs ended at their step limit, with tools still called")
        calls = sum(one.tool_calls or 0 for one in jobs)
        if any(one.malformed_calls is not None for one in jobs):
            malformed = sum(one.malformed_calls or 0 for one in jobs)
            told = f"{malformed} of {calls} tool calls were malformed" if calls else "no answer called a tool"
            lines.append(f"{traffic}: {told}")
        lines += _divergences(traffic or "", jobs)
    return lines


def _divergences(traffic: str, jobs: list[LevelJobs]) -> list[str]:
    answers = sum(sum(one.divergences.values()) for one in jobs)
    if not answers:
        return []
    counts = {kind: sum(one.divergences.get(kind, 0) for one in jobs) for kind in Divergence if kind != Divergence.SAME}
    told = ", ".join(f"{count} {_DIVERGENCES[kind]}" for kind, count in counts.items() if count)
    return [
        f"{traffic}: {sum(differing(one) for one in jobs)} of {answers} answers differ from the recording that went on "
        + (f"({told})" if told else "all the same")
    ]


def _eligible(rows: list[StepRow]) -> str:
    """What the shares are of, and how more than all can be found."""
    above = any(row.share is not None and row.share > _ABOVE for row in rows)
    return _ELIGIBLE + (_MORE_THAN_ELIGIBLE if above else "")


def _step_table(rows: list[StepRow], title: str, marks: dict[int | None, str]) -> TextTable:
    """Rows of steps with all levels together, and a column of shares for each level."""
    whole = [row for row in rows if row.level is None]
    levels = {row.level: row.label for row in rows if row.level is not None}
    if not whole:
        whole, levels = rows, {}
    columns = [
        [row.steps for row in whole],
        [str(row.requests) for row in whole],
        texts_of([row.prompt_tokens for row in whole], 0),
        texts_of([row.eligible_tokens for row in whole], 0),
        texts_of([row.cached_tokens for row in whole], 0),
        [_percent(row.share) for row in whole],
    ]
    header = ["step", "requests", "prompt tokens", "eligible tokens", "cached tokens", "of eligible"]
    for level, label in levels.items():
        shares = {row.first: row.share for row in rows if row.level == level}
        header.append(f"at {label}{marks.get(level, '')}")
        columns.append([_percent(shares.get(row.first)) for row in whole])
    return TextTable("steps", title, header, [list(cells) for cells in zip(*columns, strict=True)])


def _context_table(rows: list[ContextRow], title: str, marks: dict[int | None, str]) -> TextTable:
    """Rows of lengths, and two columns for each level; one where there are many."""
    lengths = sorted({(row.low, row.tokens) for row in rows})
    header = ["prompt tokens", "requests"]
    columns = [[tokens for _, tokens in lengths]]
    columns.append([str(sum(row.ttft_p50_s.n or 0 for row in rows if row.low == low)) for low, _ in lengths])
    levels = list(dict.fromkeys(row.level for row in rows))
    shown = _QUANTILES[:1] if len(levels) > _MANY_LEVELS else _QUANTILES
    for level in levels:
        mine = {row.low: row for row in rows if row.level == level}
        label = next(iter(mine.values())).label + marks.get(level, "")
        for name, pick in shown:
            figures = [_in_ms(pick(mine[low])) if low in mine else BLANK for low, _ in lengths]
            header.append(f"{label} {name} ms".strip())
            columns.append(texts_of(figures, 0))
    return TextTable("contexts", title, header, [list(cells) for cells in zip(*columns, strict=True)])


def _in_ms(figure: Figure) -> Figure:
    return Figure(None if figure.value is None else figure.value * 1000.0, figure.n, marks=figure.marks)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


_STATES = (
    (JobState.DONE, "done"),
    (JobState.FAILED, "failed"),
    (JobState.CUT, "cut"),
    (JobState.STEP_LIMIT, "at limit"),
    (JobState.UNFINISHED, "unfinished"),
)
_DURATIONS = (
    ("job_p50_s", "p50 s", 1),
    ("job_p95_s", "p95 s", 1),
    ("job_mean_s", "mean s", 1),
    ("steps_mean", "steps mean", 1),
    ("jobs_per_h", "jobs per hour", 1),
    ("good_jobs_per_h", "in objective", 1),
)
_MANY_LEVELS = 4  # more have no room for a second column each
_ELIGIBLE = "eligible: what an ideal cache could have served, of the session's own past and of texts it shares"
_ABOVE = 1.02  # below, it is the head of the template
_MORE_THAN_ELIGIBLE = (
    "; above 100%: also the head that all prompts have, a shared text whose first request was still under way, or "
    "prompts of an earlier load"
)
_PART_TITLES = {
    "model": "in model s",
    "queue": "queue s",
    "prefill": "prefill s",
    "decode": "decode s",
    "tools": "in tools s",
    "client": "in client s",
}
_DIVERGENCES = {
    Divergence.NO_CALL: "without the recorded call",
    Divergence.CALLED: "with a call where it has none",
    Divergence.OTHER_TOOLS: "with other tools",
    Divergence.OTHER_ARGUMENTS: "with other arguments",
}
_QUANTILES: tuple[tuple[str, Callable[[ContextRow], Figure]], ...] = (
    ("p50", lambda row: row.ttft_p50_s),
    ("p95", lambda row: row.ttft_p95_s),
)
