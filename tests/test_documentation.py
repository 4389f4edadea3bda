"""Documentation is under test: targets, paths, options and links that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_that_are_named_exist(page: Path) -> None:
    """`make X` in code is a target of the Makefile."""
    text = page.read_text(encoding="utf-8")
    code = re.findall(r"```.*?```|`[^`]+`", text, re.DOTALL)
    named = {name for part in code for name in re.findall(r"\bmake ([a-z][a-z-]+)", part)}
    assert named <= set(TARGETS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_that_are_named_exist(page: Path) -> None:
    """Relative links, and files of our own folders named in code, are there."""
    text = page.read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)#][^)]*)\)", text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    paths = re.findall(r"\b((?:locustfiles|scenarios|docs|tokenswarm|analysis)/[\w./-]+\.(?:py|yaml|md|json))", text)
    missing += [path for path in paths if not (ROOT / path).exists()]
    assert missing == []


def test_every_option_of_ours_is_documented() -> None:
    """What the plugin adds to Locust's options stands in docs/running.md with its environment variable."""
    source = (ROOT / "tokenswarm" / "plugin.py").read_text(encoding="utf-8")
    options = re.findall(r'add\(\s*"(--[a-z-]+)"', source)
    variables = re.findall(r'env_var="(\w+)"', source)
    assert len(options) > 5
    page = (ROOT / "docs" / "running.md").read_text(encoding="utf-8")
    assert [name for name in options + variables if f"`{name}" not in page] == []


def test_every_make_target_explains_itself() -> None:
    """`make` alone lists each target with a sentence."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    public = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert public is not None
    explained = set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))
    assert set(public[1].split()) <= explained
