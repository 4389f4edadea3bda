"""Images of a request: from a data URL to what the simulated model needs of a picture, decoded for real."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import msgspec
from PIL import Image, ImageOps, UnidentifiedImageError

from simulator.api_error import ApiError
from simulator.vision import Vision

_REMEMBERED = 10_000  # pictures, a few hundred bytes each
_SLICE = 1 << 16  # base64 characters decoded at a time, so that other threads get their turn
_NICENESS = 5  # of the threads that decode; the step loop goes first
_ORIENTATION = 0x0112  # of a photograph, in its EXIF data


class Picture(msgspec.Struct, frozen=True):
    """``key`` is a hash of the decoded pixels: the same picture in another file is the same picture."""

    key: int
    width: int
    height: int
    tokens: int

    @property
    def token(self) -> int:
        """The id that stands for each of its tokens in a prompt. It is negative and made of the content, so that blocks
        of other pictures have other hashes.
        """
        return -1 - self.key


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
    parts = range(comma + 1, len(url), _SLICE)
    try:
        return b"".join([base64.b64decode(url[start : start + _SLICE], validate=True) for start in parts])
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


class PictureReader:
    """Decodes in threads of its own, as vLLM does in its API server, and remembers what it has read by the hash of the
    URL: a conversation comes with its pictures again at every turn.
    """

    def __init__(self, vision: Vision) -> None:
        self._vision = vision
        self._known: OrderedDict[bytes, Picture] = OrderedDict()
        self._lock = threading.Lock()
        threads = max(1, min(4, (os.cpu_count() or 2) - 1))
        self._pool = ThreadPoolExecutor(threads, "pictures", initializer=_yield_to_others)

    def read(self, urls: Sequence[str], then: Callable[[list[Picture] | ApiError], None]) -> None:
        """Calls ``then`` in the event loop with the pictures, or with the first thing that was wrong."""
        work = asyncio.get_running_loop().run_in_executor(self._pool, self._read_all, urls)
        work.add_done_callback(lambda done: _hand_over(done, then))

    def close(self) -> None:
        """Lets the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read_all(self, urls: Sequence[str]) -> list[Picture] | ApiError:
        try:
            return [self._read(url) for url in urls]
        except ApiError as error:
            return error

    def _read(self, url: str) -> Picture:
        name = hashlib.sha256(url.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            known = self._known.get(name)
            if known is not None:
                self._known.move_to_end(name)
                return known
        picture = read_picture(url, self._vision)
        with self._lock:
            self._known[name] = picture
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return picture


def _hand_over(
    done: asyncio.Future[list[Picture] | ApiError], then: Callable[[list[Picture] | ApiError], None]
) -> None:
    if done.cancelled():
        return
    error = done.exception()
    then(done.result() if error is None else ApiError(500, f"Failed to load image: {error!r}", "InternalServerError"))


def _yield_to_others() -> None:
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
