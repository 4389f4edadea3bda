"""Failures on demand: which request fails, and how."""

from __future__ import annotations

import random
from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """How a request can be made to fail."""

    REFUSE = "refuse"  # the connection is closed as soon as it is accepted
    HTTP_429 = "429"  # with Retry-After
    HTTP_503 = "503"
    ERROR_IN_STREAM = "error-in-stream"  # 200, some tokens, then an error object
    RESET = "reset"  # TCP reset after some tokens
    STALL = "stall"  # silence after some tokens, until the client leaves
    TRUNCATE = "truncate"  # the connection ends after some tokens, without the last chunk


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hits a request when every given condition holds; without a condition it hits all of them."""

    kind: Kind
    rate: float | None = None  # probability, seeded
    above: int | None = None  # when more than so many requests are open, this one included
    every: int | None = None  # the n-th, 2n-th, ... request
    after_tokens: int = 3  # for failures inside a stream
    retry_after_s: int = 1

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 <= self.rate <= 1:
            raise ValueError(f"rate is a probability, got {self.rate}")
        if self.every is not None and self.every < 1:
            raise ValueError(f"every counts requests from 1, got {self.every}")


def parse_fault(text: str) -> Fault:
    """``KIND`` or ``KIND:key=value,key=value``, as in ``reset:rate=0.05,after_tokens=10``."""
    kind, _, options = text.partition(":")
    values: dict[str, object] = {"kind": kind}
    for option in filter(None, options.split(",")):
        key, _, value = option.partition("=")
        values[key] = value
    try:
        return msgspec.convert(values, Fault, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"fault {text!r}: {error}; kinds: {', '.join(Kind)}") from None


class FaultPlan:
    """Decides for one request, or one connection, after the other; the same seed decides the same."""

    def __init__(self, faults: tuple[Fault, ...], seed: int) -> None:
        self._random = random.Random(f"faults {seed}")
        self._at_accept = tuple(fault for fault in faults if fault.kind is Kind.REFUSE)
        self._at_request = tuple(fault for fault in faults if fault.kind is not Kind.REFUSE)
        self._connections = 0
        self._requests = 0

    def for_connection(self, open_requests: int) -> Fault | None:
        """``open_requests`` counts the one that this connection is going to bring."""
        self._connections += 1
        return self._choose(self._at_accept, self._connections, open_requests)

    def for_request(self, open_requests: int) -> Fault | None:
        """``open_requests`` includes this one."""
        self._requests += 1
        return self._choose(self._at_request, self._requests, open_requests)

    def _choose(self, faults: tuple[Fault, ...], number: int, open_requests: int) -> Fault | None:
        for fault in faults:
            lucky = fault.rate is not None and self._random.random() >= fault.rate
            few = fault.above is not None and open_requests <= fault.above
            other = fault.every is not None and number % fault.every != 0
            if not (lucky or few or other):
                return fault
        return None
