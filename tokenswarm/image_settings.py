"""Where the pictures of captioning traffic come from: made up, from a folder, or from a data set."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from tokenswarm.curves import LognormalLimits
from tokenswarm.distributions import Distribution, Lognormal, Uniform, Within
from tokenswarm.wanted import Model, OneOf, Text, Whole, mistake

PUBLISHED_PIXELS = (3136, 500_000)  # of the published captioning run
MOST_PIXELS = 16_000_000
LONGEST = 16.0  # ratio of the sides, either way; with it no side is longer than a WebP file can have it

Column = Annotated[str, Text("a column's name", longest=200)]


def _existing_folder(path: str, info: ValidationInfo) -> str:
    """The absolute path; relative ones count from the scenario's folder."""
    full = _full(path, info)
    if full is not None and not full.is_dir():
        raise mistake(f"there is no folder {full}")
    return path if full is None else str(full.resolve())


def _existing_path(path: str, info: ValidationInfo) -> str:
    full = _full(path, info)
    if full is not None and not full.exists():
        raise mistake(f"there is no file or folder {full}")
    return path if full is None else str(full.resolve())


def _full(path: str, info: ValidationInfo) -> Path | None:
    home: Path | None = (info.context or {}).get("folder")
    return None if home is None else home / Path(path).expanduser()


ExistingFolder = Annotated[str, Text("a path"), AfterValidator(_existing_folder)]
ExistingPath = Annotated[str, Text("a path"), AfterValidator(_existing_path)]


class SyntheticImages(Model):
    """Pictures without end, each with a content of its own, that compress like photographs."""

    pixels: Annotated[Distribution, Within(64, MOST_PIXELS, whole=True)] = Field(
        default=Uniform(uniform=PUBLISHED_PIXELS), description="Width times height of a picture."
    )
    aspect: Annotated[Distribution, Within(1 / LONGEST, LONGEST)] = Field(
        default=Lognormal(lognormal=LognormalLimits(median=1, sigma=0.3, min=0.25, max=4)),
        description="Width divided by height.",
    )
    format: Annotated[Literal["jpeg", "png", "webp"], OneOf()] = Field(
        default="jpeg", description="How pictures are encoded."
    )
    quality: Annotated[int, Whole(1, 100)] = Field(default=85, description="Of JPEG and WebP, from 1 to 100.")
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


class ImageColumns(Model):
    """Which columns of a data set are wanted."""

    image_column: Column = Field(
        default="images", description="Column with a picture or a list of pictures: bytes, or structs with bytes."
    )
    text_column: Column | None = Field(
        default="conversation",
        description="Column with the user's questions: text, or a conversation. null: questions are made up.",
    )


class ParquetImages(ImageColumns):
    """Pictures of a data set in Parquet files."""

    file: ExistingPath = Field(
        description="Parquet file, or folder with *.parquet files, relative to the scenario's folder."
    )


class HubImages(ImageColumns):
    """Pictures of a data set on the Hugging Face hub, downloaded while they are sent; needs the package datasets."""

    name: Annotated[str, Text("a data set's name", longest=200)] = Field(
        description="Its name there, such as lmarena-ai/VisionArena-Chat, or a local folder."
    )
    split: Annotated[str, Text("a split's name", longest=100)] = Field(default="train", description="Its split.")


class Images(Model):
    """One source of pictures."""

    synthetic: SyntheticImages | None = Field(default=None, description="Made-up pictures.")
    folder: ExistingFolder | None = Field(
        default=None, description="Folder of JPEG, PNG, WebP or GIF files, sent as they are, by name."
    )
    parquet: ParquetImages | None = Field(default=None, description="A data set, such as VisionArena-Chat.")
    hub: HubImages | None = Field(default=None, description="A data set by its name on the Hugging Face hub.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("synthetic", "folder", "parquet", "hub") if getattr(self, name) is not None]
        if len(given) > 1:
            raise mistake(f"{' and '.join(given)} exclude each other; keep one")
        return self

    @property
    def made_up(self) -> SyntheticImages | None:
        """Settings of made-up pictures; None where they come from a folder or data set."""
        return self.synthetic or (None if self.folder or self.columns else SyntheticImages())

    @property
    def columns(self) -> ParquetImages | HubImages | None:
        """Settings of a data set, whose rows may bring questions with their pictures; None for other sources."""
        return self.parquet or self.hub
