"""Runs that were cut off, damaged, or are something else: said in a line, never a traceback."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.__main__ import main
from tokenswarm.records import COLUMNS, HEADER, RequestRecord, to_csv

TIMELINE = "worker,level,traffic,phase,second,tokens,started,finished,failed,in_flight_s"


def note_texts(answer: Any) -> list[str]:
    return [note["text"] for note in answer.json["notes"]]


def test_line_cut_in_the_middle_is_dropped_and_said(table: Any, small: Path) -> None:
    """A request half written when the run died is left out, the others count, and the table says so."""
    text = (small / "requests.csv").read_text()
    (small / "requests.csv").write_text(text[: text.rindex("l1-m3") + 20])
    answer = table(small, "--json")
    assert answer.code == 0
    assert answer.json["levels"][1]["requests"] == 3
    assert "requests.csv: the last line is cut off and was left out" in note_texts(answer)


def test_cut_inside_a_quoted_text_with_line_ends(table: Any, small: Path) -> None:
    """The cut may fall inside an error text that itself contains line ends: the whole record goes."""
    text = (small / "requests.csv").read_text()
    row = text.splitlines()[7].replace("busy, come back later", "line one\nline two, with comma\nline three")
    whole, quoted = "\n".join(text.splitlines()[:7]) + "\n", row[: row.index("line three")]
    (small / "requests.csv").write_text(whole + quoted)
    answer = table(small, "--json")
    assert answer.json["levels"][1]["requests"] == 3
    assert any("cut off" in text for text in note_texts(answer))


def test_error_text_with_line_ends_is_one_row(table: Any, small: Path) -> None:
    """A complete error text over several lines belongs to one request."""
    text = (small / "requests.csv").read_text().replace("busy, come back later", "one\ntwo")
    (small / "requests.csv").write_text(text)
    answer = table(small, "--json").json
    assert answer["levels"][1]["requests"] == 4
    assert answer["failures"] == [{"kind": "http_429", "count": 1, "samples": ["one two"]}]


def test_line_cut_in_the_middle_of_the_file(table: Any, small: Path) -> None:
    """A success that lacks its times cannot have been: the row is left out and said, the others count."""
    lines = (small / "requests.csv").read_text().splitlines()
    lines[5] = lines[5][:35]
    (small / "requests.csv").write_text("\n".join(lines) + "\n")
    answer = table(small, "--json")
    assert answer.json["levels"][1]["requests"] == 3
    assert any("1 damaged rows" in text for text in note_texts(answer))


@pytest.mark.parametrize("name", ["levels.csv", "timeline.csv", "chunk_gaps.csv", "workers.csv"])
def test_side_files_may_be_cut_or_missing(table: Any, small: Path, name: str) -> None:
    """Every file beside the requests may lack its last line or be absent; counts and latencies stay."""
    text = (small / name).read_text()
    (small / name).write_text(text[:-3])
    answer = table(small, "--json")
    assert f"{name}: the last line is cut off and was left out" in note_texts(answer)
    for broken in ("", None):
        if broken is None:
            (small / name).unlink()
        else:
            (small / name).write_text(broken)
        level = table(small, "--json").json["levels"][0]
        assert level["figures"]["output_tok_s"]["value"] == pytest.approx(42 / 5.5)


def test_interrupted_run_is_read_and_not_credible(table: Any, small: Path) -> None:
    """Without end.json the table shows what was written, marks the unfinished level and the run, and fails a check."""
    (small / "end.json").unlink()
    lines = (small / "levels.csv").read_text().splitlines()
    (small / "levels.csv").write_text("\n".join(lines[:2]) + "\n")
    answer = table(small, "--json", "--check")
    assert answer.code == 3
    assert [level["state"] for level in answer.json["levels"]] == ["complete", "interrupted"]
    assert any("INTERRUPTED" in text for text in note_texts(answer))
    assert "the run was interrupted" in answer.err
    assert "2!" in table(small).out


def test_half_written_end_counts_as_interrupted(table: Any, small: Path) -> None:
    """An end.json cut in the middle was being written when the run died."""
    (small / "end.json").write_text('{"state": "fin')
    assert any("INTERRUPTED" in text for text in note_texts(table(small, "--json")))


def test_level_that_was_never_reached_is_named(table: Any, small: Path) -> None:
    """A planned level without any request is no silent gap."""
    facts = json.loads((small / "run.json").read_text())
    facts["levels"].append({"level": 2, "concurrency": 64, "tail": "fill"})
    (small / "run.json").write_text(json.dumps(facts))
    answer = table(small, "--json", "--check")
    assert answer.code == 3
    assert "planned but without any request: c=64" in note_texts(answer)


def test_level_state_and_reason_are_shown(table: Any, small: Path) -> None:
    """A level that hit its time limit is marked beside its concurrency and its reason stands below."""
    text = (small / "levels.csv").read_text().replace("1,2,complete,,", "1,2,timeout,time limit of 60 s,")
    (small / "levels.csv").write_text(text)
    shown = table(small).out
    assert "c=2: timeout: time limit of 60 s" in shown
    assert "2!" in shown


def test_byte_order_mark_and_crlf(table: Any, small: Path) -> None:
    """A file that went through a Windows editor reads the same."""
    text = (small / "requests.csv").read_text()
    (small / "requests.csv").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert table(small, "--json").json["levels"][1]["requests"] == 4


def test_columns_in_the_writers_own_order(table: Any, tmp_path: Path) -> None:
    """What the load process writes is read, all columns of it."""
    record = RequestRecord(
        level=0,
        concurrency=4,
        phase="measured",
        ticket=0,
        worker="host_1",
        traffic="chat",
        session="s",
        sent_s=1.0,
        first_token_s=1.25,
        last_token_s=3.25,
        finished_s=3.5,
        output_tokens=5,
        token_source="usage",
        error=None,
    )
    (tmp_path / "requests.csv").write_text(HEADER + to_csv([record]))
    assert HEADER.count(",") == len(COLUMNS) - 1
    figures = table(tmp_path / "requests.csv", "--json").json["levels"][0]["figures"]
    assert figures["ttft_p50_s"]["value"] == pytest.approx(0.25)
    assert figures["tpot_p50_s"]["value"] == pytest.approx(0.5)
    assert figures["wall_s"]["value"] == pytest.approx(2.5)


def test_header_alone_is_a_run_without_requests(table: Any, tmp_path: Path) -> None:
    """Nothing measured yet: an empty table that is not credible, in every format."""
    (tmp_path / "requests.csv").write_text(HEADER)
    for form in ("terminal", "markdown", "csv", "json"):
        answer = table(tmp_path / "requests.csv", "--format", form, "--check")
        assert answer.code == 3
        assert "no measured request" in answer.err


def _damage(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("run.json", "{not json", "wanted JSON"),
        ("run.json", "[]", "wanted a JSON object"),
        ("run.json", '{"format": 99}', "wanted format 1, found 99"),
        ("requests.csv", "", "it is empty"),
        ("requests.csv", "a,b\n1,2\n", "has no column phase"),
        ("levels.csv", "level\n1\n", "has no column concurrency"),
        ("timeline.csv", f"{TIMELINE}\nw,x,c,measured,1,1,1,1,1,1\n", "wanted the timeline.csv of a run"),
    ],
)  # fmt: skip
def test_damaged_files_get_one_line(table: Any, small: Path, name: str, text: str, reason: str) -> None:
    """File, what was wanted and why it is not that, on one line; exit code 2 and nothing on standard output."""
    answer = table(_damage(small, name, text))
    assert (answer.code, answer.out) == (2, "")
    assert len(answer.err.splitlines()) == 1
    assert str(small / name) in answer.err
    assert reason in answer.err


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n\x00\xff\xfe", b"color,shape\nred,round\n"])
def test_foreign_files_get_one_line(table: Any, tmp_path: Path, content: bytes) -> None:
    """An empty, a binary and an unrelated CSV file are refused by name."""
    path = tmp_path / "thing.csv"
    path.write_bytes(content)
    answer = table(path)
    assert (answer.code, answer.out) == (2, "")
    assert len(answer.err.splitlines()) == 1
    assert str(path) in answer.err


def test_folder_without_a_run(table: Any, tmp_path: Path) -> None:
    """A wrong folder is named, with what was wanted."""
    answer = table(tmp_path)
    assert answer.code == 2
    assert f"{tmp_path}: wanted a run folder" in answer.err


def test_number_column_with_text(table: Any, small: Path) -> None:
    """A text where a number belongs is one line, not a traceback."""
    text = (small / "requests.csv").read_text().replace("120.500000", "soon", 1)
    answer = table(_damage(small, "requests.csv", text))
    assert answer.code == 2
    assert "soon" in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("value", ["inf", "-inf", "1e308", "99999999999999999999"])
def test_numbers_that_no_run_can_have_get_one_line(
    table: Any, small: Path, capsys: pytest.CaptureFixture[str], value: str
) -> None:
    """An endless or absurdly large time is refused with column and value by every command."""
    text = (small / "requests.csv").read_text().replace("120.500000", value, 1)
    _damage(small, "requests.csv", text)
    for command in ("table", "capacity", "audit", "report"):
        assert main([command, str(small)]) == 2
        line = capsys.readouterr().err
        assert len(line.splitlines()) == 1
        assert f"_s has {float(value):g}, wanted less than 1e+15" in line


@pytest.mark.parametrize(("column", "value"), [("sent_s", "9000000"), ("first_token_s", "-5"), ("finished_s", "0")])
def test_times_that_run_backwards_are_left_out_and_said(table: Any, small: Path, column: str, value: str) -> None:
    """A request that ended, or got a token, long before its send is in no figure, and a note counts it."""
    lines = [line.split(",") for line in (small / "requests.csv").read_text().splitlines()]
    row = next(i for i, line in enumerate(lines) if "measured" in line and line[lines[0].index("error_kind")] == "")
    before = sum(level["requests"] for level in table(small, "--json").json["levels"])
    lines[row][lines[0].index(column)] = value
    answer = table(_damage(small, "requests.csv", "\n".join(",".join(line) for line in lines) + "\n"), "--json")
    assert sum(level["requests"] for level in answer.json["levels"]) == before - 1
    assert any("1 damaged rows" in text and "backwards" in text for text in note_texts(answer))


def test_doubled_column_is_named(table: Any, small: Path) -> None:
    """Two columns of one name leave open which one counts: the name is told."""
    lines = (small / "requests.csv").read_text().splitlines()
    doubled = [lines[0] + ",sent_s", *(line + ",1" for line in lines[1:])]
    answer = table(_damage(small, "requests.csv", "\n".join(doubled) + "\n"))
    assert answer.code == 2
    assert "it has more than one column sent_s" in answer.err


def test_nan_in_a_number_column_names_the_column(table: Any, small: Path) -> None:
    """A column with the word nan in it is named, not counted."""
    text = (small / "requests.csv").read_text().replace("120.500000", "nan", 1)
    answer = table(_damage(small, "requests.csv", text))
    assert answer.code == 2
    assert "_s has text, wanted numbers" in answer.err


def test_terminal_shows_no_control_characters_of_a_file(table: Any, small: Path) -> None:
    """Escape sequences in a model's name, or in the reason of a level, do not reach the terminal."""
    facts = json.loads((small / "run.json").read_text())
    facts["target"] = facts.get("target", {}) | {"model": "m\x1b[31m"}
    (small / "run.json").write_text(json.dumps(facts))
    levels = (small / "levels.csv").read_text().replace(",complete,", ",partial\x1b[2J,")
    answer = table(_damage(small, "levels.csv", levels), "--check", "--width", "100")
    assert answer.code == 3
    assert "partial [2J" in answer.out + answer.err
    assert "\x1b" not in answer.out + answer.err


def test_one_run_at_a_time(table: Any, small: Path) -> None:
    """Two names are refused in one line that repeats them."""
    answer = table(small, "other")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"one run at a time, not 2: {small}, other\n"


@pytest.mark.parametrize("named", [[], [""]])
def test_no_run_means_the_newest(
    named: list[str], small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without RUN, or with an empty one, the run begun last below results/ is read; without any, one line says so."""
    home = small.parent
    monkeypatch.chdir(home)
    assert main(["table", *named]) == 2
    assert capsys.readouterr().err == "no run in results/ yet: make demo, or name a run folder\n"
    for number, name in enumerate(("newer", "older", "no-run")):
        shutil.copytree(small, home / "results" / name)
        os.utime(home / "results" / name / "run.json", (1000 - number, 1000 - number))
    (home / "results" / "no-run" / "run.json").unlink()
    assert main(["table", *named, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "newest run: results/newer\n"
    assert json.loads(captured.out)["source"]["path"] == "results/newer"


@pytest.mark.slow
def test_two_hundred_thousand_requests_are_quick(table: Any, tmp_path: Path) -> None:
    """Reading is columnwise: 200,000 rows in two levels take a few seconds (a million is meant to take under 20)."""
    import time

    rows = [HEADER]
    blank = dict.fromkeys(COLUMNS, "")
    for i in range(200_000):
        level, at = i // 100_000, (i % 100_000) * 0.05
        row = blank | {
            "level": level, "concurrency": 8, "phase": "measured", "ticket": i, "worker": "w", "user": i % 8,
            "traffic": "chat", "session": f"s{i}", "sent_s": f"{at:.6f}", "first_token_s": f"{at + 0.1:.6f}",
            "last_token_s": f"{at + 0.4:.6f}", "finished_s": f"{at + 0.4:.6f}", "output_tokens": 31,
            "token_source": "usage",
        }  # fmt: skip
        rows.append(",".join(map(str, row.values())) + "\n")
    (tmp_path / "requests.csv").write_text("".join(rows))
    start = time.perf_counter()
    document = table(tmp_path / "requests.csv", "--json").json
    assert time.perf_counter() - start < 20
    assert [level["requests"] for level in document["levels"]] == [100_000, 100_000]


@pytest.mark.parametrize("width", ["-5", "1"])
def test_width_that_holds_no_word_is_that_of_a_narrow_terminal(table: Any, small: Path, width: str) -> None:
    """A table asked for in fewer columns than a word takes is still one that can be read."""
    assert table(small, "--width", width).out == table(small, "--width", "40").out
