"""Footnotes on how well the load generator could tell the token events apart."""

from __future__ import annotations

from analysis.health_verdict import MERGED_LIMIT
from analysis.levels import LevelRow
from analysis.outcome import Note


def merged_read_notes(rows: list[LevelRow]) -> list[Note]:
    """One line: the levels in which too many token events shared a stamp, else the largest share as a detail."""
    shares = [(row, share) for row in rows if (share := row.figure("merged_reads_share").value) is not None]
    if not shares:
        return []
    crowded = [(row, share) for row, share in shares if share > MERGED_LIMIT]
    if not crowded:
        most = max(share for _, share in shares)
        text = f"at most {most:.1%} of the reads of a level carried several token events (one stamp)"
        return [Note("clock", text, detail=True)]
    told = ", ".join(f"{row.name} ({share:.0%})" for row, share in crowded)
    text = (
        f"merged reads: {told} of the reads carried several token events, whose times are known only to within a "
        "read; use more load processes (--processes) unless the server itself sends them together"
    )
    return [Note("merged reads", text)]
