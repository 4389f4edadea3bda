"""Draws synthetic pictures whose compressed size is like a photograph's.

The brightness is a sum of random layers: each is twice as fine as the one before and ``detail`` times as strong, so
that contrast falls with fineness about as it does in photographs. Plain noise would compress to several times the size
of a photograph and a gradient to a tenth of it; both would falsify upload and the server's decoding. Colour changes
more slowly than brightness, as in photographs, and is drawn at half the size, which is all that JPEG keeps of it.

``_DETAIL`` was chosen by encoding eight photographs (scikit-image's astronaut, chelsea, coffee, ihc, motorcycle and
rocket, scikit-learn's china and flower), scaled down to each size. Bytes per pixel, median of the photographs / of 64
drawings:

======== =========== =========== =========== ===========
pixels   JPEG q 85   JPEG q 50   PNG         WebP q 85
======== =========== =========== =========== ===========
  3,136  0.61 / 0.70 0.40 / 0.43 2.65 / 2.24 0.42 / 0.55
 20,000  0.36 / 0.39 0.19 / 0.19 2.01 / 2.02 0.29 / 0.35
 60,000  0.29 / 0.31 0.15 / 0.14 1.83 / 1.90 0.24 / 0.29
150,000  0.24 / 0.23 0.12 / 0.11 1.75 / 1.69 0.19 / 0.22
250,000  0.22 / 0.23 0.11 / 0.11 1.70 / 1.69 0.17 / 0.22
500,000  0.20 / 0.18 0.10 / 0.08 1.50 / 1.47 0.14 / 0.15
======== =========== =========== =========== ===========

Single photographs of 250,000 pixels lie between 0.14 and 0.29 (JPEG q 85), single drawings between 0.16 and 0.35:
``detail`` is another one in each.

All chance is the raw stream of one SFC64 generator, seeded with the number of the drawing: a number is the same picture
in every process, and the same file with the same version of Pillow.
"""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
from numpy.random import SFC64
from PIL import Image

Format = Literal["jpeg", "png", "webp"]

_CELLS = 5  # of the coarsest layer, along the shorter side
_DETAIL = (0.62, 0.80)
_COLOUR_DETAIL = 0.45
_BRIGHTNESS, _COLOUR = 0.45, 0.2  # strength of the coarsest layer
_Floats = np.ndarray[tuple[int, int], np.dtype[np.float32]]


def draw(number: int, width: int, height: int) -> Image.Image:
    """Drawing ``number`` (0 to 2^64 - 1), of ``width`` x ``height`` pixels, in mode YCbCr, as JPEG stores it."""
    bits = SFC64(number)
    least, most = _DETAIL
    detail = least + (most - least) * float(bits.random_raw()) / 2.0**64
    channels = [_bytes(_layers(bits, height, width, _BRIGHTNESS, detail))]
    for _ in range(2):
        half = _bytes(_layers(bits, height // 2 + 1, width // 2 + 1, _COLOUR, _COLOUR_DETAIL))
        channels.append(half.repeat(2, axis=0)[:height].repeat(2, axis=1)[:, :width])
    return Image.merge("YCbCr", [Image.fromarray(channel) for channel in channels])


def _layers(bits: SFC64, height: int, width: int, strength: float, detail: float) -> _Floats:
    """The sum of all layers around 128, from the coarsest to one with a value for each point."""
    sizes = [(height, width)]
    while min(sizes[-1]) >= 2 * _CELLS:
        sizes.append((sizes[-1][0] // 2 + 1, sizes[-1][1] // 2 + 1))
    total = _noise(bits, *sizes.pop(), strength) + np.float32(128)
    while sizes:
        strength *= detail
        layer = _noise(bits, *sizes.pop(), strength)
        _add_coarser(layer, total)
        total = layer
    return total


def _add_coarser(layer: _Floats, coarse: _Floats) -> None:
    """Add a layer with half the points a side, plus one; what lies between its points is their mean."""
    odd_rows, odd_columns = layer[1::2].shape[0], layer[:, 1::2].shape[1]
    even_rows, even_columns = layer.shape[0] - odd_rows, layer.shape[1] - odd_columns
    half = np.float32(0.5)
    beside = (coarse[:, :odd_columns] + coarse[:, 1 : odd_columns + 1]) * half
    below = (coarse[:odd_rows] + coarse[1 : odd_rows + 1]) * half
    layer[::2, ::2] += coarse[:even_rows, :even_columns]
    layer[::2, 1::2] += beside[:even_rows]
    layer[1::2, ::2] += below[:, :even_columns]
    layer[1::2, 1::2] += (beside[:odd_rows] + beside[1 : odd_rows + 1]) * half


def _noise(bits: SFC64, height: int, width: int, strength: float) -> _Floats:
    """Independent values from -128 to 127, times ``strength``."""
    count = height * width
    values = bits.random_raw(count // 8 + 1).astype("<u8", copy=False).view(np.int8)[:count]
    return np.multiply(values.reshape(height, width), np.float32(strength), dtype=np.float32)


def _bytes(values: _Floats) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return np.clip(values, 0, 255, out=values).astype(np.uint8)


def encoded(image: Image.Image, format: Format, quality: int) -> bytes:
    """The file. ``quality`` (1 to 100) has no meaning for PNG.

    PNG at zlib's level 1 and WebP with method 2: a third of the default's time, files 2 to 9 % larger.
    """
    file = io.BytesIO()
    match format:
        case "jpeg":
            image.save(file, "JPEG", quality=quality)
        case "png":
            image.convert("RGB").save(file, "PNG", compress_level=1)
        case "webp":
            image.convert("RGB").save(file, "WEBP", quality=quality, method=2)
    return file.getvalue()
