"""The error a request is answered with."""

from __future__ import annotations

import json


class ApiError(Exception):
    """Becomes ``{"error": {"message", "type", "param", "code"}}`` with the same status."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def body(self) -> bytes:
        """The JSON to send."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.status}
        return json.dumps({"error": error}, separators=(",", ":")).encode()
