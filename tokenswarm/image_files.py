"""Image files as people have them: what one holds, and a folder of them."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from tokenswarm.errors import InputError, ScenarioError
from tokenswarm.pictures import Exhibit, Picture

_MEDIA_TYPES = {"JPEG": "image/jpeg", "MPO": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
_WANTED = "a JPEG, PNG, WebP or GIF file is wanted"
_MOST_PROBLEMS = 20
_PREVIEW = (64, 64)  # a JPEG is decoded at an eighth of its size, which still reads all of the file


def picture_of(data: bytes, place: str, *, decode: bool = False) -> Picture:
    """The picture in a file, as it is; with ``decode`` all of it is looked at, not only its head.

    Raises ``InputError``, in one line that begins with ``place``, where a server could not decode it.
    """
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            media_type = _MEDIA_TYPES.get(image.format or "")
            if decode and media_type:
                image.draft("RGB", _PREVIEW)
                image.load()
    except UnidentifiedImageError:
        raise InputError(f"{place}: not an image; {_WANTED}") from None
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise InputError(f"{place}: a broken image ({str(error) or type(error).__name__}); {_WANTED}") from None
    if media_type is None:
        raise InputError(f"{place}: an image of format {image.format}; {_WANTED}")
    return Picture(data, media_type, width, height, place)


class ImageFolder:
    """The files of one folder in the order of their names; hidden files and subfolders are passed over."""

    def __init__(self, folder: str | Path) -> None:
        """Raises ``InputError`` where the folder cannot be read or is empty."""
        self._folder = Path(folder)
        try:
            entries = sorted(self._folder.iterdir())
        except OSError as error:
            raise InputError(f"{folder}: cannot be read ({error.strerror})") from None
        self.names = [entry.name for entry in entries if not entry.name.startswith(".") and not entry.is_dir()]
        if not self.names:
            below = "; files in its subfolders are not taken" if entries else ""
            raise InputError(f"{folder}: holds no file{below}; at least one image is wanted")

    def check(self) -> tuple[int, list[str]]:
        """How many pictures there are, and no notes. Decodes every file; raises ``ScenarioError`` with a line for each
        unusable one, 20 at most."""
        problems = []
        for number in range(len(self.names)):
            try:
                self.picture(number, decode=True)
            except InputError as error:
                problems.append(str(error))
        if len(problems) > _MOST_PROBLEMS:
            problems[_MOST_PROBLEMS:] = [f"{self._folder}: {len(problems) - _MOST_PROBLEMS} more files are unusable"]
        if problems:
            raise ScenarioError(problems)
        return len(self.names), []

    def exhibit(self, number: int) -> Exhibit:
        return Exhibit([self.picture(number)])

    def picture(self, number: int, *, decode: bool = False) -> Picture:
        """File ``number``; after the last one comes the first again. Raises ``InputError`` where it is unusable."""
        name = self.names[number % len(self.names)]
        path = self._folder / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        picture = picture_of(data, str(path), decode=decode)
        return Picture(picture.data, picture.media_type, picture.width, picture.height, name)
