"""Where the pictures of a class of traffic come from: ``images`` in a scenario."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from tokenswarm.curves import LognormalLimits
from tokenswarm.distributions import Distribution, Lognormal, Uniform, Within
from tokenswarm.target_settings import ExistingFile
from tokenswarm.wanted import Model, OneOf, Text, Whole, mistake

MOST_PIXELS = 16_000_000
LONGEST = 16.0  # ratio of the sides, either way; servers refuse pictures that are much longer

Column = Annotated[str, Text("a column's name", longest=200)]


def _existing_folder(path: str, info: ValidationInfo) -> str:
    """The absolute path; relative ones count from the scenario's folder."""
    folder: Path | None = (info.context or {}).get("folder")
    if folder is None:
        return path
    full = folder / Path(path).expanduser()
    if not full.is_dir():
        raise mistake(f"there is no folder {full}")
    return str(full.resolve())


ExistingFolder = Annotated[str, Text("a path"), AfterValidator(_existing_folder)]


class SyntheticImages(Model):
    """Drawn pictures whose compressed size is like a photograph's."""

    pixels: Annotated[Distribution, Within(1, MOST_PIXELS)] = Field(
        default=Uniform(uniform=(3_136, 500_000)), description="Pixels of a picture: width times height."
    )
    aspect: Annotated[Distribution, Within(1 / LONGEST, LONGEST)] = Field(
        default=Lognormal(lognormal=LognormalLimits(median=1, sigma=0.3)),
        description="Width divided by height.",
    )
    format: Annotated[Literal["jpeg", "png", "webp"], OneOf()] = Field(
        default="jpeg", description="How pictures are encoded."
    )
    quality: Annotated[int, Whole(1, 100)] = Field(
        default=85, description="Quality of JPEG and WebP, from 1 to 100; PNG has none."
    )
    distinct: Annotated[int, Whole(1, 10_000_000)] | None = Field(
        default=None, description="So many different pictures, which come again in turn; when left out, all differ."
    )

    def sides(self, rng: Random) -> tuple[int, int]:
        """Width and height of one picture. Their product stays within ``pixels`` where whole sides allow it."""
        pixels = min(max(self.pixels.sample(rng), 1.0), MOST_PIXELS)
        aspect = min(max(self.aspect.sample(rng), 1 / LONGEST), LONGEST)
        width = math.sqrt(pixels * aspect)
        candidates = [
            (wide, tall)
            for wide in (max(1, math.floor(width)), math.ceil(width))
            for tall in (max(1, math.floor(pixels / wide)), math.ceil(pixels / wide))
        ]
        return min(candidates, key=lambda one: self._misfit(one[0], one[1], pixels, aspect))

    def _misfit(self, wide: int, tall: int, pixels: float, aspect: float) -> tuple[bool, float, float]:
        area = wide * tall
        outside = not self.pixels.lowest <= area <= self.pixels.highest
        return outside, abs(area - pixels), abs(math.log(wide / tall / aspect))


class Images(Model):
    """One of ``synthetic`` (when none is named), ``folder``, ``parquet`` and ``hub``."""

    synthetic: SyntheticImages | None = Field(default=None, description="Drawn pictures, without end.")
    folder: ExistingFolder | None = Field(
        default=None, description="Folder of JPEG, PNG, WebP or GIF files, sent as they are ordered by name."
    )
    parquet: ExistingFile | None = Field(
        default=None, description="Parquet file with a column of pictures, sent as they are in the order of the rows."
    )
    hub: Annotated[str, Text("a data set's name", longest=200)] | None = Field(
        default=None, description="Data set of the Hugging Face hub, read as it is sent; needs the package datasets."
    )
    split: Annotated[str, Text("a split's name", longest=100)] = Field(
        default="train", description="Split of the data set from the hub."
    )
    image_column: Column = Field(default="images", description="Column with the picture or pictures of a row.")
    text_column: Column | None = Field(
        default="conversation",
        description="Column with the user's questions: text, or a conversation; null: generated questions.",
    )

    @model_validator(mode="before")
    @classmethod
    def _synthetic_unless_named(cls, value: object) -> object:
        sources = ("synthetic", "folder", "parquet", "hub")
        if isinstance(value, dict) and all(value.get(name) is None for name in sources):
            return {**value, "synthetic": {}}
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        named = [name for name in ("synthetic", "folder", "parquet", "hub") if getattr(self, name) is not None]
        if len(named) > 1:
            raise mistake(f"one source of pictures is wanted, not {' and '.join(named)}", named[1])
        return self
