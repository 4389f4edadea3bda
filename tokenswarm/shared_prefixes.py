"""What the first prompts of a trace's sessions share, as names from which an analysis can tell who shares how much.

The pieces of all sessions make a tree. What only one session has is no shared text. The rest of a session's path is
named after the places at which others part from it, each with the tokens up to there: ``0@512/3@2048`` shares 512
tokens with ``0@512/7@1024`` and 2,048 with whatever else begins with ``0@512/3@2048``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenswarm.trace import SharedText, TraceSession


class SharedPrefixes:
    """The tree of ``sessions``. Raises nothing; sessions without shared pieces are fine."""

    def __init__(self, sessions: Sequence[TraceSession]) -> None:
        self._nodes: dict[tuple[int, str], int] = {}
        self._sessions = [0]  # how many go through each node; the root is not counted
        self._labels: dict[int, int] = {}
        for session in sessions:
            for node in self._path(session.shared):
                self._sessions[node] += 1

    def of(self, session: TraceSession) -> tuple[tuple[SharedText, ...], str | None]:
        """The pieces that another session begins with too, and their name; None where there are none."""
        path = [node for node in self._path(session.shared) if self._sessions[node] > 1]
        tokens, names = 0, []
        for at, node in enumerate(path):
            tokens += session.shared[at].tokens
            if at + 1 == len(path) or self._sessions[path[at + 1]] < self._sessions[node]:
                names.append(f"{self._labels.setdefault(node, len(self._labels))}@{tokens}")
        return session.shared[: len(path)], "/".join(names) or None

    def _path(self, pieces: Sequence[SharedText]) -> list[int]:
        path, node = [], 0
        for piece in pieces:
            key = (node, piece.name)
            known = self._nodes.get(key)
            if known is None:
                known = self._nodes[key] = len(self._sessions)
                self._sessions.append(0)
            node = known
            path.append(node)
        return path
