"""Images in requests, beside what vLLM 0.32 answered to the same ones."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drawings import about, data_url, drawing, image_part, text_part
from recorded import RECORDED
from sim_process import STEADY, Simulator, events, figures, running_simulator

CHAT = "/v1/chat/completions"
TEXT_TOKENS = 12  # of "What is in this picture?" in the chat template: 3 + 4 + 5 words
TINY = "block_size: 32\nvision: {patch: 14, max_pixels: 200704, limit: 3}\n"  # as the server that was recorded
RESETS = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")


@pytest.fixture(scope="module")
def preset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps of 10 ms and the recorded server's image settings."""
    path = tmp_path_factory.mktemp("presets") / "tiny-vl.yaml"
    path.write_text(STEADY + TINY)
    return path


@pytest.fixture(scope="module")
def simulator(preset: Path) -> Iterator[Simulator]:
    """Shared by the tests that count nothing from its start."""
    with running_simulator("--preset", str(preset), "--speed", "10") as running:
        yield running


def usage(simulator: Simulator, body: dict[str, Any]) -> dict[str, Any]:
    """Of one streamed answer."""
    status, _, raw = simulator.call("POST", CHAT, body)
    assert status == 200, raw
    found: dict[str, Any] = events(raw)[-2]["usage"]
    return found


def recorded_requests() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / "images.jsonl").read_text().splitlines()]


def test_tokens_and_caches_are_those_of_the_recorded_requests(preset: Path) -> None:
    """The same requests in the same order: image tokens, what an image adds to the prompt, what the prefix cache gave
    (a different image with the same tokens nothing, a salt nothing), and what the multimodal cache counted.
    """
    first, *others = recorded_requests()
    with running_simulator("--preset", str(preset), "--speed", "10") as simulator:
        for request in (first, *others):
            if request["name"] == "e_image_1_after_reset":
                counted = figures(simulator)
                for path in RESETS:
                    assert simulator.call("POST", path)[0] == 200
            parts = [image_part(data_url(drawing(*image))) for image in request["images"]]
            salt = {"cache_salt": request["salt"]} if request["salt"] else {}
            got = usage(simulator, about([*parts, text_part(request["text"])], **salt))
            told = got["prompt_tokens_details"]
            assert told.get("multimodal_tokens") == request["multimodal_tokens"], request["name"]
            assert told["cached_tokens"] == request["cached_tokens"], request["name"]
            if request["text"] == first["text"]:
                added = got["prompt_tokens"] - TEXT_TOKENS
                assert added == request["prompt_tokens"] - first["prompt_tokens"], request["name"]
        assert [counted[f"vllm:mm_cache_{what}_total"] for what in ("queries", "hits")] == [9, 5]
        assert figures(simulator)["vllm:mm_cache_hits_total"] == 5, "nothing is found after a reset"
        rows = simulator.truth()
    assert [row["images"] for row in rows] == [len(request["images"]) or None for request in (first, *others)]
    assert [row["image_hits"] for row in rows] == [None, 0, 1, 1, 0, 1, 1, 0, 1, 0]
    assert rows[7]["image_tokens"] == 234


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("f_bad_base64", [image_part("data:image/png;base64,%%%%")]),
        ("f_not_an_image", [image_part("data:image/png;base64,aGVsbG8=")]),
        ("f_too_many_images", [image_part("data:image/png;base64,%%%%")] * 4),
        ("f_file_url", [image_part("file:///etc/hostname")]),
        ("f_url_unreachable", [image_part("http://127.0.0.1:9/x.png")]),
        ("f_audio", [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]),
        ("f_bad_part_type", [{"type": "picture", "x": 1}]),
    ],
)
def test_what_is_no_usable_image_is_answered_as_recorded(
    simulator: Simulator, name: str, parts: list[dict[str, Any]]
) -> None:
    """Status, type and parameter are the same, the message begins the same; the next request is served."""
    wanted = json.loads((RECORDED / "image-errors.json").read_text())[name]
    status, _, raw = simulator.call("POST", CHAT, about([*parts, text_part("What?")]))
    error = json.loads(raw)["error"]
    assert (status, error["type"], error["param"]) == (wanted["status"], wanted["type"], wanted["param"])
    assert error["code"] == wanted["code"]
    assert error["message"][:30] == wanted["message"][:30]
    row = simulator.truth()[-1]
    assert (row["ended"], row["http_status"], row["output_tokens"]) == ("rejected", wanted["status"], 0)
    assert usage(simulator, about([text_part("What?")]))["completion_tokens"] == 8


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp"])
def test_an_image_file_that_breaks_off_is_refused(simulator: Simulator, kind: str) -> None:
    """Its head is right, so that only decoding all of it can tell; so also for a line that is much too long."""
    url = data_url(drawing(1), kind)
    cut = url[: url.index(",") + 1 + len(url) // 8 * 4]
    status, _, raw = simulator.call("POST", CHAT, about([image_part(cut)]))
    assert status == 400, raw
    assert json.loads(raw)["error"]["message"].startswith("Failed to load image: ")
    status, _, raw = simulator.call("POST", CHAT, about([image_part(data_url(drawing(1, 404, 2), kind))]))
    assert (status, b"aspect ratio" in raw) == (400, True)


def test_the_same_pixels_are_the_same_image_in_any_file(preset: Path) -> None:
    """PNG at two levels of compression, with and without a comment: found; one bit of one pixel changed: not."""
    from PIL.PngImagePlugin import PngInfo

    comment = PngInfo()
    comment.add_text("comment", "taken yesterday")
    picture, other = drawing(1), drawing(1)
    red, green, blue = other.getpixel((100, 100))
    other.putpixel((100, 100), (red ^ 1, green, blue))
    urls = [data_url(picture), data_url(picture, compress_level=1), data_url(picture, pnginfo=comment), data_url(other)]
    with running_simulator("--preset", str(preset), "--speed", "10") as simulator:
        cached = [usage(simulator, about([image_part(url)]))["prompt_tokens_details"]["cached_tokens"] for url in urls]
        assert cached == [0, 64, 64, 0]
        assert [row["image_hits"] for row in simulator.truth()] == [0, 1, 1, 0]


def test_an_image_is_seen_the_right_way_up(simulator: Simulator) -> None:
    """A photograph of 448 * 224 pixels that its EXIF data say to turn is the one of 224 * 448, in modes of any kind."""
    from PIL import Image

    turned = Image.Exif()
    turned[0x0112] = 6
    lying = drawing(5, 448, 224)
    upright = lying.transpose(Image.Transpose.ROTATE_270)
    for picture in (lying, upright):
        exif = {"exif": turned} if picture is lying else {}
        usage(simulator, about([image_part(data_url(picture, **exif))]))
    usage(simulator, about([image_part(data_url(lying.convert("P")))]))
    *_, first, second, third = simulator.truth()
    assert (first["image_hits"], second["image_hits"], third["image_hits"]) == (0, 1, 0)
    assert first["image_tokens"] == second["image_tokens"] == third["image_tokens"] == 8 * 16


def test_tokenize_expands_images_and_asks_no_cache(simulator: Simulator) -> None:
    """As recorded: 64 equal ids between two others, two more than text alone and them; the counters stand still."""
    before = figures(simulator)["vllm:mm_cache_queries_total"]
    messages = [{"role": "user", "content": [image_part(data_url(drawing(8))), text_part("What is in this picture?")]}]
    status, _, raw = simulator.call("POST", "/tokenize", {"messages": messages})
    assert status == 200, raw
    answer = json.loads(raw)
    assert answer["count"] == len(answer["tokens"]) == TEXT_TOKENS + 66
    assert len(set(answer["tokens"][4:68])) == 1
    assert min(answer["tokens"]) >= 0
    assert figures(simulator)["vllm:mm_cache_queries_total"] == before
    messages[0]["content"] = [image_part("data:image/png;base64,%%%%")]
    assert simulator.call("POST", "/tokenize", {"messages": messages})[0] == 400


def test_a_second_question_has_image_and_answer_before_it(simulator: Simulator) -> None:
    """Text before and after two images, in their places: the first prompt and answer begin the second prompt."""
    parts = [text_part("compare"), image_part(data_url(drawing(20))), text_part("with")]
    parts += [image_part(data_url(drawing(21))), text_part("please")]
    body = about(parts, 30, stream=False)
    first = json.loads(simulator.call("POST", CHAT, body)[2])
    assert first["usage"]["prompt_tokens"] == 3 + 4 + 3 + 2 * 66
    assert first["usage"]["prompt_tokens_details"]["multimodal_tokens"] == {"image": 128}
    body["messages"] += [first["choices"][0]["message"], {"role": "user", "content": "why"}]
    second = json.loads(simulator.call("POST", CHAT, body)[2])
    assert second["usage"]["prompt_tokens"] == 142 + 30 + 1 + 4 + 1 + 3
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 160, "142 + 29 are computed: 5 blocks of 32"
    assert simulator.truth()[-1]["image_hits"] == 2


def test_the_prompt_tells_image_tokens_where_it_tells_cached_ones(preset: Path) -> None:
    """A server that keeps one to itself keeps the other; the prompt has them all the same."""
    with running_simulator("--preset", str(preset), "--set", "report_cached_tokens=false") as simulator:
        told = usage(simulator, about([image_part(data_url(drawing(1)))], 1))
        assert told == {"prompt_tokens": 7 + 66, "completion_tokens": 1, "total_tokens": 74}


def test_a_client_that_leaves_while_its_image_is_read_is_no_request_of_the_engine(preset: Path) -> None:
    """Its row says so, and nothing of it reaches the engine."""
    body = json.dumps(about([image_part(data_url(drawing(1, 1200, 1200), "png"))])).encode()
    with running_simulator("--preset", str(preset)) as simulator:
        connection = simulator.connect()
        connection.request("POST", CHAT, body)
        connection.close()
        until = time.monotonic() + 10
        while not ((rows := simulator.truth()) and rows[0]["ended"]) and time.monotonic() < until:
            time.sleep(0.02)
        assert rows[0]["ended"] == "client-left"
        assert figures(simulator)["vllm:prompt_tokens_total"] == 0


def test_a_model_without_vision_takes_no_images(steady: Simulator) -> None:
    """400 before anything is decoded."""
    status, _, raw = steady.call("POST", CHAT, about([image_part(data_url(drawing(1)))]))
    assert (status, json.loads(raw)["error"]["message"]) == (400, "this model takes text only")
