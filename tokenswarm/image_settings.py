"""Where the pictures of captioning traffic come from: made up, from a folder, or from a data set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from tokenswarm.curves import LognormalLimits
from tokenswarm.distributions import Distribution, Lognormal, Uniform, Within
from tokenswarm.target_settings import ExistingFile
from tokenswarm.wanted import Model, OneOf, Text, Whole, mistake

PUBLISHED_PIXELS = (3136, 500_000)  # of the published captioning run


def _existing_folder(path: str, info: ValidationInfo) -> str:
    """The absolute path; relative ones count from the scenario's folder."""
    home: Path | None = (info.context or {}).get("folder")
    if home is None:
        return path
    full = home / Path(path).expanduser()
    if not full.is_dir():
        raise mistake(f"there is no folder {full}")
    return str(full.resolve())


ExistingFolder = Annotated[str, Text("a path"), AfterValidator(_existing_folder)]


class SyntheticImages(Model):
    """Pictures without end, each with a content of its own, that compress like photographs."""

    pixels: Annotated[Distribution, Within(64, 100_000_000, whole=True)] = Field(
        default=Uniform(uniform=PUBLISHED_PIXELS), description="Width times height of a picture."
    )
    aspect: Annotated[Distribution, Within(0.02, 50)] = Field(
        default=Lognormal(lognormal=LognormalLimits(median=1, sigma=0.3, min=0.25, max=4)),
        description="Width divided by height.",
    )
    format: Annotated[Literal["jpeg", "png", "webp"], OneOf()] = Field(
        default="jpeg", description="How pictures are encoded."
    )
    quality: Annotated[int, Whole(1, 100)] = Field(default=85, description="Of JPEG and WebP, from 1 to 100.")


class ParquetImages(Model):
    """Pictures of a data set in one Parquet file."""

    file: ExistingFile = Field(description="Parquet file, relative to the scenario's folder.")
    image_column: Annotated[str, Text("a column's name")] = Field(
        default="images", description="Column with a picture or a list of pictures: bytes, or structs with bytes."
    )
    text_column: Annotated[str, Text("a column's name")] | None = Field(
        default="conversation",
        description="Column with the conversation; its first message is the question. Or null.",
    )


class Images(Model):
    """One source of pictures."""

    synthetic: SyntheticImages | None = Field(default=None, description="Made-up pictures.")
    folder: ExistingFolder | None = Field(
        default=None, description="Folder of JPEG, PNG or WebP files, sent as they are."
    )
    parquet: ParquetImages | None = Field(default=None, description="A data set, such as VisionArena-Chat.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [name for name in ("synthetic", "folder", "parquet") if getattr(self, name) is not None]
        if len(given) > 1:
            raise mistake(f"{' and '.join(given)} exclude each other; keep one")
        return self

    @property
    def made_up(self) -> SyntheticImages | None:
        """Settings of made-up pictures; None where they come from a folder or data set."""
        return None if self.folder or self.parquet else self.synthetic or SyntheticImages()
