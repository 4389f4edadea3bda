"""Rows of ``requests.csv`` as any reader of CSV sees them."""

from __future__ import annotations

import csv
import io

import pytest

from tokenswarm.records import COLUMNS, HEADER, Phase, RequestRecord, to_csv


@pytest.mark.parametrize("text", ["plain", "a, b", 'said "no"', "two\nlines", "carriage\rreturn", ',"\r\n', ""])
def test_a_row_reads_back_whatever_its_text(text: str) -> None:
    """Blank for unknown, six decimals of a second, and texts as they were, on the row's own line or not."""
    record = RequestRecord(phase=Phase.MEASURED, ticket=3, traffic="chat", sent_s=1.5, level=0, error=text)
    rows = list(csv.DictReader(io.StringIO(HEADER + to_csv([record, record]), newline="")))
    known = {"phase": "measured", "ticket": "3", "traffic": "chat", "sent_s": "1.500000", "level": "0", "error": text}
    assert rows == [dict.fromkeys(COLUMNS, "") | {"user": "0", "turn": "0"} | known] * 2
