"""What people paste as a URL."""

from __future__ import annotations

import pytest

from tokenswarm.endpoint import Endpoint
from tokenswarm.errors import InputError

CHAT = "/v1/chat/completions"

TABLE = {
    "http://h:8000": f"http://h:8000{CHAT}",
    "http://h:8000/": f"http://h:8000{CHAT}",
    "http://h:8000/v1": f"http://h:8000{CHAT}",
    "http://h:8000/v1/": f"http://h:8000{CHAT}",
    "http://h:8000//v1": f"http://h:8000{CHAT}",
    "  http://h:8000/v1  ": f"http://h:8000{CHAT}",
    "http://h:8000/v1/chat/completions": f"http://h:8000{CHAT}",
    "http://h:8000/v1/completions": f"http://h:8000{CHAT}",
    "http://h:8000/gw/model-a/v1": f"http://h:8000/gw/model-a{CHAT}",
    "http://h:8000/gw/model-a/": f"http://h:8000/gw/model-a{CHAT}",
    "https://x.example/compatible-mode/v1/": f"https://x.example/compatible-mode{CHAT}",
    "https://x.example/v1beta/openai": "https://x.example/v1beta/openai/chat/completions",
    "https://r.example/openai/deployments/d1/chat/completions?api-version=2024-06-01": (
        "https://r.example/openai/deployments/d1/chat/completions?api-version=2024-06-01"
    ),
    "https://r.example/openai/deployments/d1?api-version=1": (
        "https://r.example/openai/deployments/d1/chat/completions?api-version=1"
    ),
    "h:8000": f"http://h:8000{CHAT}",
    "HTTP://H:8000/v1": f"http://h:8000{CHAT}",
    "http://h:80/v1": f"http://h{CHAT}",
    "https://h:443": f"https://h{CHAT}",
    "http://[::1]:8000/v1": f"http://[::1]:8000{CHAT}",
}


@pytest.mark.parametrize("given", TABLE)
def test_url(given: str) -> None:
    """Every way to write the base URL leads to the same operation; /v1 is never doubled."""
    url = Endpoint.parse(given).url_for("chat")
    assert url == TABLE[given]
    assert "/v1/v1" not in url
    assert "//v1" not in url.partition("://")[2]


@pytest.mark.parametrize("given", TABLE)
def test_parsing_is_idempotent(given: str) -> None:
    """A URL that was worked out names the same operation when it is given again."""
    url = Endpoint.parse(given).url_for("chat")
    assert Endpoint.parse(url).url_for("chat") == url


@pytest.mark.parametrize("given", ["", "   ", "ftp://h/v1", "http://", "http://h:99999", "http://h:abc", "http://[::1"])
def test_wrong_url(given: str) -> None:
    """What is no http URL is refused in one line."""
    with pytest.raises(InputError) as raised:
        Endpoint.parse(given)
    assert "\n" not in str(raised.value)
    assert "URL" in str(raised.value)


def test_key_in_the_url_is_refused_and_not_repeated() -> None:
    """A key before '@' would end up in logs."""
    with pytest.raises(InputError) as raised:
        Endpoint.parse("http://user:sk-secret@h:8000/v1")
    assert "sk-secret" not in str(raised.value)


def test_roots() -> None:
    """Health and metrics pages lie before the version, models behind it."""
    endpoint = Endpoint.parse("http://h:8000/gw/v1/chat/completions")
    assert endpoint.full
    assert endpoint.api_root == "http://h:8000/gw/v1"
    assert endpoint.server_root == "http://h:8000/gw"
    assert endpoint.path_of("/models") == "/gw/v1/models"
    assert endpoint.url_for("completions") == "http://h:8000/gw/v1/completions"


@pytest.mark.parametrize(
    ("url", "azure"),
    [
        ("https://me.openai.azure.com", True),
        ("https://gw.example/openai/deployments/d1", True),
        ("https://api.openai.com/v1", False),
    ],
)
def test_azure_is_known(url: str, azure: bool) -> None:
    """Azure takes the key under another name."""
    assert Endpoint.parse(url).is_azure is azure
