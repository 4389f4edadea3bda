"""Which pictures a session has, and what is in their files."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import subprocess
import sys
from random import Random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tokenswarm.image_settings import Images, SyntheticImages
from tokenswarm.images import ImageSource
from tokenswarm.pictures import Picture, data_url


def source(run: str = "", **synthetic: Any) -> ImageSource:
    return ImageSource(Images.model_validate({"synthetic": synthetic}), name="captions", seed=7, run=run)


def pixels(picture: Picture) -> bytes:
    return Image.open(io.BytesIO(picture.data)).convert("RGB").tobytes()


@pytest.mark.parametrize(("format_", "magic"), [("jpeg", b"\xff\xd8\xff"), ("png", b"\x89PNG"), ("webp", b"RIFF")])
def test_a_drawing_is_the_file_that_it_says(format_: str, magic: bytes) -> None:
    """An independent decoder finds the format, the sides and colours that the picture states."""
    picture = source(format=format_, pixels=30_000).picture(Random(1), 0)
    assert picture.data.startswith(magic)
    image = Image.open(io.BytesIO(picture.data))
    image.load()
    assert image.format == format_.upper()
    assert image.size == (picture.width, picture.height)
    assert len(set(image.convert("RGB").resize((8, 8)).get_flattened_data())) > 8
    assert (picture.media_type, picture.origin) == (f"image/{format_}", "synthetic")
    head, _, content = data_url(picture).partition(",")
    assert head == f"data:image/{format_};base64"
    assert base64.b64decode(content, validate=True) == picture.data


def test_no_two_sessions_see_the_same_pixels() -> None:
    """Contents differ, not only metadata, even at the smallest published size."""
    small = source(pixels=3_136, aspect=1)
    shown = {pixels(small.picture(Random(number), number)) for number in range(200)}
    assert len(shown) == 200


def test_the_same_key_is_the_same_file_in_another_process() -> None:
    """Every worker draws the same picture for the same ticket."""
    code = (
        "import hashlib; from random import Random; from tokenswarm.images import ImageSource; "
        "from tokenswarm.image_settings import Images;"
        "s = ImageSource(Images.model_validate({'synthetic': {}}), name='captions', seed=7);"
        "print(hashlib.sha256(b''.join(s.picture(Random(n), n).data for n in range(5))).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    own = b"".join(source().picture(Random(number), number).data for number in range(5))
    assert hashlib.sha256(own).hexdigest() == other


def test_sizes_stay_and_contents_change_from_run_to_run() -> None:
    """The second run on a server asks for as much work, and finds no picture of the first in its cache."""
    first = source(run="a").orders(Random(1), Random("a"), 0, 3)
    second = source(run="b").orders(Random(1), Random("b"), 0, 3)
    assert [(one.width, one.height) for one in first] == [(one.width, one.height) for one in second]
    assert not {one.number for one in first} & {one.number for one in second}
    assert len({(one.width, one.height) for one in first}) == 3


def test_distinct_pictures_come_again_in_turn() -> None:
    """With three distinct pictures, session 3 has the first one's again; another class has others."""
    few = source(distinct=3)
    files = [few.picture(Random(number), number).data for number in range(6)]
    assert files[:3] == files[3:]
    assert len(set(files)) == 3
    other = ImageSource(Images.model_validate({"synthetic": {"distinct": 3}}), name="other", seed=7)
    assert other.picture(Random(0), 0).data not in files


@given(
    low=st.integers(3_136, 400_000),
    span=st.floats(1.1, 3),
    aspect=st.floats(0.2, 5),
    seed=st.integers(0, 1000),
)
def test_sides_stay_within_the_range_of_pixels(low: int, span: float, aspect: float, seed: int) -> None:
    """Width times height never leaves the asked range, and rounding to whole sides is all that changes the ratio."""
    high = round(low * span)
    width, height = SyntheticImages.model_validate({"pixels": {"uniform": [low, high]}, "aspect": aspect}).sides(
        Random(seed)
    )
    assert low <= width * height <= high
    assert abs(math.log(width / height / aspect)) <= 3 / min(width, height)


def test_sizes_cover_the_asked_range() -> None:
    """Uniform pixels have their quartiles where a uniform distribution has them; landscape is as common as portrait."""
    orders = [source().orders(Random(number), Random(number), number)[0] for number in range(2000)]
    areas = sorted(one.width * one.height for one in orders)
    for share in (0.25, 0.5, 0.75):
        error = 4 * 496_864 * math.sqrt(share * (1 - share) / 2000)  # four standard errors of a quantile
        assert areas[round(share * 2000)] == pytest.approx(3_136 + share * 496_864, abs=error)
    assert 0.45 < sum(one.width > one.height for one in orders) / 2000 < 0.55


@pytest.mark.parametrize(
    ("area", "format_", "of_photographs"),
    # medians of eight photographs (scikit-image's and scikit-learn's), scaled down and encoded with Pillow
    [
        (3_136, "jpeg", 0.61),
        (20_000, "jpeg", 0.36),
        (60_000, "jpeg", 0.29),
        (250_000, "jpeg", 0.22),
        (500_000, "jpeg", 0.20),
        (60_000, "png", 1.83),
        (60_000, "webp", 0.24),
    ],
)
def test_files_are_as_large_as_those_of_photographs(area: int, format_: str, of_photographs: float) -> None:
    """Bytes per pixel at quality 85: the median is within a fifth of photographs', and pictures differ as they do."""
    drawn = [source(pixels=area, format=format_).picture(Random(number), number) for number in range(24)]
    sizes = sorted(len(one.data) / (one.width * one.height) for one in drawn)
    assert median(sizes) == pytest.approx(of_photographs, rel=0.2)
    assert sizes[-1] / sizes[0] > 1.15


def test_quality_decides_the_size() -> None:
    """Quality 50 takes about half the bytes of quality 85, and 95 about twice (photographs: 0.5 and 1.8)."""
    sizes = {
        quality: median(
            len(source(pixels=100_000, quality=quality).picture(Random(one), one).data) for one in range(12)
        )
        for quality in (50, 85, 95)
    }
    assert 0.35 < sizes[50] / sizes[85] < 0.6
    assert 1.5 < sizes[95] / sizes[85] < 2.4


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 16), (16, 1), (7, 9), (4, 5), (3000, 190)])
def test_any_shape_can_be_drawn(width: int, height: int) -> None:
    """The smallest and the longest pictures are drawn with exactly their sides."""
    from tokenswarm.drawings import draw

    assert draw(2**64 - 1, width, height).size == (width, height)
