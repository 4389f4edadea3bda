"""Folders and data sets of pictures: what is read, and what is said of what cannot be."""

from __future__ import annotations

import io
import os
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.image_rows import questions
from tokenswarm.image_settings import Images, ParquetImages
from tokenswarm.image_table import ImageTable
from tokenswarm.images import ImageFacts, ImageSource
from tokenswarm.pictures import Exhibit, Order

STORED = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
VISION_ARENA = {"images": pa.list_(STORED), "conversation": pa.list_(pa.list_(MESSAGE))}


def photograph(number: int, format_: str = "PNG", size: tuple[int, int] = (40, 30)) -> bytes:
    file = io.BytesIO()
    noise = Image.frombytes("RGB", size, Random(number).randbytes(size[0] * size[1] * 3))
    noise.save(file, format_)
    return file.getvalue()


def source(**images: Any) -> ImageSource:
    return ImageSource(Images.model_validate(images), name="captions", seed=7)


def shown(images: ImageSource, number: int) -> Exhibit:
    return images.exhibit(images.orders(Random(0), Random(0), number)[0])


def turn(question: str, answer: str = "I see.") -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def write(path: Path, columns: dict[str, pa.DataType], rows: list[dict[str, Any]], **options: Any) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items()))), path, **options)
    return path


def arena(path: Path, first: int, count: int, **options: Any) -> Path:
    rows = [
        {
            "images": [{"bytes": photograph(number), "path": None}],
            "conversation": [turn(f"What is {number}?"), turn(f"And besides {number}?")],
        }
        for number in range(first, first + count)
    ]
    return write(path, VISION_ARENA, rows, **options)


# folders ------------------------------------------------------------------------------


def test_files_of_a_folder_are_sent_as_they_are(tmp_path: Path) -> None:
    """In the order of their names, without encoding them anew, and from the first again after the last."""
    files = {"b.PNG": photograph(1), "a.jpg": photograph(2, "JPEG"), "c": photograph(3, "WEBP"), "d.gif": photograph(4)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / ".hidden").write_text("no image")
    (tmp_path / "below").mkdir()
    folder = source(folder=str(tmp_path))
    assert folder.check() == ImageFacts(4)
    exhibits = [shown(folder, number).pictures[0] for number in range(5)]
    assert [one.origin for one in exhibits] == ["a.jpg", "b.PNG", "c", "d.gif", "a.jpg"]
    assert [one.data for one in exhibits[:4]] == [files[one.origin] for one in exhibits[:4]]
    assert [one.media_type for one in exhibits[:4]] == ["image/jpeg", "image/png", "image/webp", "image/png"]
    assert {(one.width, one.height) for one in exhibits} == {(40, 30)}


def test_sessions_of_several_pictures_take_the_files_in_turn(tmp_path: Path) -> None:
    """Sessions of three pictures share no file until all have been used."""
    folder = source(folder=str(tmp_path))
    numbers = [order.number for ordinal in range(3) for order in folder.orders(Random(0), Random(0), ordinal, 3)]
    assert numbers == list(range(9))
    assert folder.shortage(ImageFacts(9), 3, 3) is None
    assert folder.shortage(ImageFacts(9), 4, 3) == (
        f"{tmp_path} has 9 images for 4 sessions: images repeat and may be served from an image cache"
    )


def test_every_unusable_file_is_one_line(tmp_path: Path) -> None:
    """A text, a picture cut short, an unreadable file and a format that servers refuse are told before the load."""
    whole = photograph(1, "JPEG", (400, 300))
    (tmp_path / "a-good.jpg").write_bytes(whole)
    (tmp_path / "b-cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c-text.png").write_text("captions")
    (tmp_path / "d-empty.png").write_bytes(b"")
    (tmp_path / "e-tiff").write_bytes(photograph(2, "TIFF"))
    (tmp_path / "f-gone.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ScenarioError) as caught:
        source(folder=str(tmp_path)).check()
    wanted = "a JPEG, PNG, WebP or GIF file is wanted"
    assert caught.value.problems[1:] == [
        f"{tmp_path}/c-text.png: not an image; {wanted}",
        f"{tmp_path}/d-empty.png: not an image; {wanted}",
        f"{tmp_path}/e-tiff: an image of format TIFF; {wanted}",
        f"{tmp_path}/f-gone.png: cannot be read (No such file or directory)",
    ]
    assert caught.value.problems[0].startswith(f"{tmp_path}/b-cut.jpg: a broken image (image file is truncated")
    assert not any("\n" in line for line in caught.value.problems)


def test_many_unusable_files_are_counted(tmp_path: Path) -> None:
    """A folder of something else entirely gives 20 lines and one that counts the rest."""
    for number in range(30):
        (tmp_path / f"{number:02}.txt").write_text("words")
    with pytest.raises(ScenarioError) as caught:
        source(folder=str(tmp_path)).check()
    assert len(caught.value.problems) == 21
    assert caught.value.problems[-1] == f"{tmp_path}: 10 more files are unusable"


def test_an_empty_folder_is_one_line(tmp_path: Path) -> None:
    """Empty, without files of its own, or not there at all."""
    with pytest.raises(InputError, match=r": holds no file; at least one image is wanted$"):
        source(folder=str(tmp_path)).check()
    (tmp_path / "2024").mkdir()
    with pytest.raises(InputError, match=r": holds no file; files in its subfolders are not taken; at least"):
        source(folder=str(tmp_path)).check()
    with pytest.raises(InputError, match=r"/2025: cannot be read \(No such file or directory\)$"):
        source(folder=str(tmp_path / "2025")).check()


# data sets ----------------------------------------------------------------------------


def test_rows_bring_pictures_and_what_users_asked(tmp_path: Path) -> None:
    """In the layout of VisionArena-Chat: files byte for byte, the user's questions in order, no answers."""
    table = source(parquet={"file": str(arena(tmp_path / "chat.parquet", 0, 5))})
    assert table.check() == ImageFacts(5)
    for number in (0, 3, 4, 5, 1):
        found = shown(table, number)
        assert [one.data for one in found.pictures] == [photograph(number % 5)]
        assert found.questions == [f"What is {number % 5}?", f"And besides {number % 5}?"]
        assert found.pictures[0].origin == f"{tmp_path}/chat.parquet: row {number % 5}"
    assert table.shortage(ImageFacts(5), 6, 3) == (
        f"{tmp_path}/chat.parquet has 5 rows for 6 sessions: images repeat and may be served from an image cache"
    )


def test_files_and_row_groups_are_read_in_any_order(tmp_path: Path) -> None:
    """A folder of shards with several row groups is one data set; rows asked for out of order are the right ones."""
    (tmp_path / "data").mkdir()
    arena(tmp_path / "data" / "train-00000.parquet", 0, 150, row_group_size=60)
    arena(tmp_path / "data" / "train-00001.parquet", 150, 70, row_group_size=60)
    (tmp_path / "README.md").write_text("A data set.")
    table = source(parquet={"file": str(tmp_path)})
    assert table.check().count == 220
    order = list(range(220))
    Random(3).shuffle(order)
    for number in order[:60]:
        assert shown(table, number).questions[0] == f"What is {number}?"


@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        (pa.binary(), lambda data: data),
        (pa.large_binary(), lambda data: data),
        (STORED, lambda data: {"bytes": data, "path": "a.png"}),
        (pa.list_(pa.binary()), lambda data: [data, data]),
        (pa.large_list(STORED), lambda data: [{"bytes": data, "path": None}, None]),
    ],
)
def test_forms_of_picture_columns(tmp_path: Path, kind: pa.DataType, wrap: Any) -> None:
    """Bytes, structs with bytes, and lists of them, under any name and without questions."""
    path = write(tmp_path / "a.parquet", {"image": kind}, [{"image": wrap(photograph(1))}])
    table = source(parquet={"file": str(path), "image_column": "image", "text_column": None})
    assert table.check().count == 1
    found = shown(table, 0)
    assert {one.data for one in found.pictures} == {photograph(1)}
    assert found.questions == []


def test_a_picture_that_is_only_named_is_looked_for_beside_the_file(tmp_path: Path) -> None:
    """Some data sets keep the files apart and name them in ``path``."""
    (tmp_path / "one.png").write_bytes(photograph(1))
    rows = [{"images": {"bytes": None, "path": "one.png"}}, {"images": {"bytes": None, "path": "two.png"}}]
    path = write(tmp_path / "a.parquet", {"images": STORED}, rows)
    facts = source(parquet={"file": str(path), "text_column": None}).check()
    assert facts.notes == [
        f"1 of the first 2 rows have no usable picture and are passed over; {path}: row 1: {tmp_path}/two.png: "
        "cannot be read (No such file or directory)"
    ]


@pytest.mark.parametrize(
    ("value", "asked"),
    [
        (None, []),
        ("  ", []),
        ("What?", ["What?"]),
        (["One?", "Two?"], ["One?", "Two?"]),
        ([{"role": "system", "content": "Be kind."}, *turn("A?"), *turn("B?")], ["A?", "B?"]),
        ([turn("A?"), turn("B?")], ["A?", "B?"]),
        ([{"from": "human", "value": "A?"}, {"from": "gpt", "value": "No."}], ["A?"]),
        ([{"user": "A?", "assistant": "No."}, {"user": "B?", "assistant": "No."}], ["A?", "B?"]),
        ([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "A?"}]}], ["A?"]),
    ],
)
def test_forms_of_conversations(value: Any, asked: list[str]) -> None:
    """What users said, in every form that public data sets have it."""
    assert list(questions(value)) == asked


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"image_column": "image"}, "has no column 'image'; one of images, conversation is wanted (did you mean "),
        ({"text_column": "caption"}, "has no column 'caption'; one of images, conversation is wanted"),
        ({"image_column": "conversation"}, "column 'conversation' holds list<element: list<element: struct<role:"),
        ({"text_column": "images"}, "column 'images' holds list<element: struct<bytes: binary, path: string>>; text "),
    ],
)
def test_wrong_columns_are_one_line(tmp_path: Path, settings: dict[str, str], line: str) -> None:
    """The file, the column, what it holds and what was wanted."""
    path = arena(tmp_path / "chat.parquet", 0, 1)
    with pytest.raises(InputError) as caught:
        source(parquet={"file": str(path)} | settings).check()
    assert str(caught.value).startswith(f"{path}: {line}")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_data_set_are_one_line(tmp_path: Path) -> None:
    """Another format, no rows, an empty folder."""
    (tmp_path / "chat.csv").write_text("image,text\n" * 10)
    empty = write(tmp_path / "empty.parquet", VISION_ARENA, [])
    (tmp_path / "folder").mkdir()
    for name, line in (
        ("chat.csv", "not a Parquet file ("),
        (empty.name, "has no rows; at least one is wanted"),
        ("folder", "holds no file whose name ends in .parquet; at least one is wanted"),
    ):
        with pytest.raises(InputError) as caught:
            source(parquet={"file": str(tmp_path / name)}).check()
        assert str(caught.value).startswith(f"{tmp_path / name}: {line}")
        assert "\n" not in str(caught.value)


def test_rows_without_a_usable_picture_are_passed_over(tmp_path: Path) -> None:
    """They are told before the load; at run time the next usable row takes their place, and the exhibit says so."""
    bad: list[Any] = [[], None, [{"bytes": b"no image", "path": None}], [{"bytes": None, "path": None}]]
    rows = [{"images": [{"bytes": photograph(number), "path": None}], "conversation": None} for number in range(3)]
    rows[1:1] = [{"images": value, "conversation": None} for value in bad]
    path = write(tmp_path / "a.parquet", VISION_ARENA, rows)
    table = source(parquet={"file": str(path)})
    assert table.check() == ImageFacts(
        7,
        [
            "4 of the first 7 rows have no usable picture and are passed over; "
            f"{path}: row 1: has no picture; at least one is wanted"
        ],
    )
    found = shown(table, 2)
    assert (found.pictures[0].data, found.skipped) == (photograph(1), 3)
    assert shown(table, 6).skipped == 0


def test_a_data_set_without_any_usable_picture_is_one_line(tmp_path: Path) -> None:
    """The first row's problem stands for all."""
    rows = [{"images": [], "conversation": [turn("What?")]} for _ in range(3)]
    path = write(tmp_path / "a.parquet", VISION_ARENA, rows)
    with pytest.raises(InputError, match=r"row 0: has no picture; at least one is wanted$"):
        source(parquet={"file": str(path)}).check()
    with pytest.raises(InputError, match=r"row 2: has no picture"):
        source(parquet={"file": str(path)}).exhibit(Order(2))


def test_reading_row_by_row_never_holds_the_data_set(tmp_path: Path) -> None:
    """Of 24 MB in twelve row groups, two at most are in memory at once, while all rows are read in order."""
    path = tmp_path / "a.parquet"
    filler = [os.urandom(100_000) for _ in range(20)]
    schema = pa.schema([("images", pa.binary())])
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for _ in range(12):
            writer.write_table(pa.table({"images": filler}, schema=schema))
    table = ImageTable(ParquetImages(file=str(path), text_column=None))
    before = pa.total_allocated_bytes()
    most = 0
    tracemalloc.start()
    for number in range(240):
        assert table.row(number).images == filler[number % 20]
        most = max(most, pa.total_allocated_bytes() - before)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 17e6  # eight batches that are kept, of 1.6 MB, and what is being read
    assert python < 5e6


# the settings -------------------------------------------------------------------------


def test_two_sources_are_refused() -> None:
    """One class has one source of pictures."""
    with pytest.raises(ValidationError, match="exclude each other"):
        Images.model_validate({"synthetic": {}, "folder": "photographs"})


def test_the_hub_needs_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package ``datasets`` one line says what to install, or what to do instead."""
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(InputError, match=r"^images\.hub needs the package datasets: pip install datasets, or "):
        source(hub={"name": "lmarena-ai/VisionArena-Chat"}).check()


def test_rows_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package reads a local folder as it reads the hub: in order, back again, and past the end."""
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "arena").mkdir()
    arena(tmp_path / "arena" / "train-00000.parquet", 0, 80)
    hub = source(hub={"name": str(tmp_path / "arena")})
    assert hub.check().notes == []
    for number in (0, 5, 3, 79, 2, 80, 161):
        found = shown(hub, number)
        assert (found.pictures[0].data, found.questions[0]) == (photograph(number % 80), f"What is {number % 80}?")
    with pytest.raises(InputError, match=r"\(test\): cannot be loaded \(Bad split: test"):
        source(hub={"name": str(tmp_path / "arena"), "split": "test"}).check()
    with pytest.raises(InputError, match="has no column 'image'; one of images, conversation is wanted"):
        source(hub={"name": str(tmp_path / "arena"), "image_column": "image"}).check()
