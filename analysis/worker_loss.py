"""What a run lacks because workers died: arrivals that went with them, and rows that came too late to count."""

from __future__ import annotations

from pathlib import Path

from analysis.level_names import level_names
from analysis.outcome import Note
from analysis.run_folder import Run

LATE = "late.csv"


def loss_notes(run: Run) -> list[Note]:
    """Which levels lost sessions to a dead worker, and how many late rows there are. The workers' names and the times
    stand in the reasons of the levels."""
    names = level_names(run)
    notes = []
    lines = run.levels.dropna(subset=["level", "lost"]).drop_duplicates("level", keep="last")
    for level, lost, reason in zip(lines["level"], lines["lost"], lines["reason"].astype("object"), strict=True):
        if lost > 0 and "lost" not in str(reason):  # else the reason tells it
            name = names.get(int(level), f"level {int(level)}")
            arrivals = "1 arrival was" if lost == 1 else f"{int(lost)} arrivals were"
            text = f"{name}: {arrivals} handed to a worker that was lost; what became of that is unknown"
            notes.append(Note("lost", text))
    notes += [Note("lost worker", text) for text in lost_workers(run)]
    if run.whole_folder and (late := late_rows(run.path)):
        rows = "1 row" if late == 1 else f"{late} rows"
        text = f"{LATE}: {rows} came from a worker after it had been given up; not counted anywhere"
        notes.append(Note("late rows", text))
    return notes


def lost_workers(run: Run) -> list[str]:
    """What a run that went on to its end tells of workers that went before, beside the reasons of its levels."""
    end = run.end or {}
    told = end.get("reasons") if end.get("state") == "finished" else None
    reasons = " ".join(str(reason) for reason in run.levels["reason"].dropna())
    return [str(text) for text in told if str(text) not in reasons] if isinstance(told, list) else []


def late_rows(folder: Path) -> int:
    """Whole lines of ``late.csv`` without its header; 0 where there is no such file."""
    path = folder / LATE
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        first = file.readline()
        count = sum(line.endswith(b"\n") for line in file)
    return count + (first.endswith(b"\n") and b"sent_s" not in first)
