"""From a data URL to what the simulated model needs of a picture, decoded for real."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
from urllib.parse import urlsplit

from PIL import Image, ImageOps, UnidentifiedImageError

from simulator.api_error import ApiError
from simulator.picture import Picture
from simulator.vision import Vision

_ORIENTATION = 0x0112  # of a photograph, in its EXIF data


def read_picture(url: str, vision: Vision) -> Picture:
    """Decodes a data URL; ``ApiError`` with vLLM's answer where that cannot be done."""
    try:
        mode, size, pixels = _pixels(_data(url))
        tokens = vision.tokens(*size)
    except (OSError, UnidentifiedImageError, SyntaxError, Image.DecompressionBombError) as error:
        raise ApiError(400, f"Failed to load image: {_plain(error)}") from None
    except ValueError as error:
        raise ApiError(400, str(error)) from None
    digest = hashlib.sha256(f"{mode} {size}".encode())
    digest.update(pixels)
    return Picture(int.from_bytes(digest.digest()[:7]), *size, tokens)


def _plain(error: Exception) -> str:
    """Without the address of the buffer that Pillow read from."""
    return str(error).partition(" object at 0x")[0] + (" object>" if " object at 0x" in str(error) else "")


def _data(url: str) -> bytes:
    scheme = url.partition(":")[0].lower()
    match scheme:
        case "data":
            return _base64(url)
        case "http" | "https":
            place = urlsplit(url).netloc
            raise ApiError(500, f"Cannot connect to host {place}: this server has no network", "InternalServerError")
        case "file":
            message = "Cannot load local files without `--allowed-local-media-path`."
            raise ApiError(500, message, "InternalServerError")
        case _:
            raise ValueError("The URL must be either a HTTP, data or file URL.")


def _base64(url: str) -> bytes:
    comma = url.find(",")
    if comma < 0:
        raise ValueError(f"Invalid data URL {url[:32]!r}: missing ',' separator.")
    if not url[:comma].endswith(";base64"):
        raise ApiError(501, "Only base64 data URLs are supported for now.", "NotImplementedError")
    try:
        return base64.b64decode(url[comma + 1 :], validate=True)
    except binascii.Error as error:
        padding = "padding" in str(error).lower()
        raise ValueError("Incorrect padding" if padding else "Non-base64 digit found") from None


def _pixels(data: bytes) -> tuple[str, tuple[int, int], bytes]:
    """Mode, width and height, and the bytes of an image, the right way up."""
    image: Image.Image = Image.open(io.BytesIO(data))
    image.load()
    if image.getexif().get(_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode != "RGB":
        image = image.convert("RGBA")  # palettes and transparency are part of what is seen
    return image.mode, image.size, image.tobytes()
