"""Finds out what RUN is (run folder, requests.csv, Locust CSVs, another tool's results, a table) and reads it."""

from __future__ import annotations

from pathlib import Path

from analysis.arrival_block import arrival_notes
from analysis.audit import audit_notes
from analysis.audit_lengths import prompt_lengths, success_bias
from analysis.cache_block import cache_notes
from analysis.cold_start import cold_start_of, warmup_rows
from analysis.csv_file import header_of
from analysis.eligible import eligible_tokens
from analysis.epochs import epoch_notes
from analysis.failures import groups_of_rows
from analysis.level_names import level_names
from analysis.levels import level_rows
from analysis.locust_csv import is_locust_name, prefix_of, read_locust, stats_file_of
from analysis.locust_history import SUFFIX as HISTORY
from analysis.locust_history import outcome_of_history
from analysis.locust_levels import outcome_of_locust
from analysis.locust_sweep import outcome_of_sweep
from analysis.notes import notes_of, unrun_levels
from analysis.other_tools import holds_json, is_other_csv, outcome_of_csv, outcome_of_json, outcome_of_results
from analysis.outcome import Outcome
from analysis.published_table import holds_published, published_outcome
from analysis.reconcile import server_views
from analysis.run_folder import Run, read_run, run_of_requests
from analysis.sample_size import sample_size_notes
from analysis.steps import job_classes, steps_of
from analysis.worker_loss import loss_notes, lost_workers
from tokenswarm.errors import RunFolderError
from tokenswarm.records import Phase

# Of run.json, what the tables and files say of the run.
_FACTS = ("run_id", "created", "seed", "target", "provenance", "cache_probe", "isolation")
_WANTED = (
    "a run folder, a requests.csv, the prefix of Locust's CSV files (out for out_stats.csv), results of another tool, "
    "or a published table"
)


def read_outcome(run: str, *, failures_infinite: bool = False) -> Outcome:
    """With the notes of the audit. Raises ``RunFolderError`` with one line that names the file and what was wanted."""
    outcome = _outcome_of(run, failures_infinite)
    outcome.notes += audit_notes(outcome)
    return outcome


def _outcome_of(run: str, failures_infinite: bool) -> Outcome:
    path = Path(run)
    if path.is_dir():
        return _outcome_of_folder(path, failures_infinite)
    if path.name == "run.json" and path.is_file():
        return outcome_of_run(read_run(path.parent), failures_infinite=failures_infinite)
    if path.is_file():
        return _outcome_of_file(path, failures_infinite)
    if stats_file_of(run) is None and Path(run + HISTORY).is_file():
        return outcome_of_history(Path(run + HISTORY))
    if stats_file_of(run) is not None or is_locust_name(path):
        return outcome_of_locust(read_locust(prefix_of(path)))
    raise RunFolderError(f"{run}: wanted {_WANTED}, but nothing is there")


def newest_run(results: Path) -> Path | None:
    """The run folder in ``results`` that was begun last; ``None`` where there is none."""
    begun = [(path.stat().st_mtime, path.parent) for path in results.glob("*/run.json")]
    return max(begun)[1] if begun else None


def _outcome_of_folder(folder: Path, failures_infinite: bool) -> Outcome:
    if (folder / "run.json").exists():
        return outcome_of_run(read_run(folder), failures_infinite=failures_infinite)
    if (folder / "requests.csv").exists():
        return outcome_of_run(run_of_requests(folder / "requests.csv"), failures_infinite=failures_infinite)
    prefixes = sorted({prefix_of(path) for path in folder.iterdir() if path.name.endswith("_stats.csv")})
    if len(prefixes) == 1:
        return outcome_of_locust(read_locust(prefixes[0]))
    if prefixes:
        return outcome_of_sweep(folder, prefixes)
    if len(histories := sorted(folder.glob(f"*{HISTORY}"))) == 1:
        return outcome_of_history(histories[0])
    if (results := outcome_of_results(folder)) is not None:
        return results
    raise RunFolderError(f"{folder}: wanted {_WANTED}, but the folder has no run.json, requests.csv or *_stats.csv")


def _outcome_of_file(path: Path, failures_infinite: bool) -> Outcome:
    if holds_json(path):
        return outcome_of_json(path)
    names = header_of(path)
    if path.name.endswith(HISTORY) or {"Timestamp", "User Count"} <= set(names):
        return outcome_of_history(path)
    if "sent_s" in names:
        return outcome_of_run(run_of_requests(path), failures_infinite=failures_infinite)
    prefix = prefix_of(path)
    if path == stats_file_of(prefix) or not is_locust_name(path):
        if is_other_csv(names):
            return outcome_of_csv(path)
        if holds_published(path):
            return published_outcome(path)
        if "Name" not in names:
            raise RunFolderError(f"{path}: wanted {_WANTED}, but it is a CSV file of no such kind")
        return outcome_of_locust(read_locust(prefix, path))
    return outcome_of_locust(read_locust(prefix))


def outcome_of_run(run: Run, *, failures_infinite: bool = False) -> Outcome:
    """Levels, cold start, failures and footnotes of a run."""
    eligible = eligible_tokens(run)
    rows, by_class = level_rows(run, eligible, failures_infinite=failures_infinite)
    steps = steps_of(run, eligible)
    measured = run.requests["phase"] == Phase.MEASURED
    outcome = Outcome(
        path=str(run.path),
        source="run folder" if run.whole_folder else "requests.csv",
        name=run.name,
        simulated=run.simulated,
        facts={key: run.facts.get(key) for key in _FACTS},
        scenario=run.scenario,
        search=run.search,
        levels=rows,
        classes=by_class,
        job_classes=job_classes(run),
        steps=steps.steps,
        step_groups=steps.groups,
        contexts=steps.contexts,
        cold_start=cold_start_of(run.requests, rows),
        warmup=warmup_rows(run.requests, level_names(run)),
        server=server_views(run, rows),
        failures=groups_of_rows(run.requests[measured & run.requests["error_kind"].notna()]),
        notes=notes_of(run, rows, failures_infinite=failures_infinite),
        doubts=_doubts(run, int(measured.sum()), unrun_levels(run, rows)),
    )
    outcome.concerns = success_bias(run.requests, rows) + prompt_lengths(run.requests, rows)
    outcome.notes[:0] = epoch_notes(run, rows) + loss_notes(run) + arrival_notes(rows)
    outcome.notes += cache_notes(outcome) + sample_size_notes(rows)
    return outcome


def _doubts(run: Run, measured: int, unrun: list[str]) -> list[str]:
    doubts = []
    if not measured:
        doubts.append("the run has no measured request")
    if run.whole_folder and run.end is None:
        doubts.append("the run was interrupted: it has no end.json")
    doubts += lost_workers(run)
    if unrun:
        doubts.append(f"levels without any request: {', '.join(unrun)}")
    return doubts
