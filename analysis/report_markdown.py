"""A report as Markdown, its plots as SVG files beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.render import escaped, pipe_table
from analysis.report_sections import (
    Block,
    Bullets,
    Code,
    Definitions,
    Document,
    Facts,
    Fold,
    Link,
    Plot,
    Plots,
    Prose,
    Sentence,
    Tabled,
    row_anchor,
)
from analysis.report_theme import css
from analysis.tables import TextTable


def markdown_of(document: Document, plots_in: str) -> str:
    """``plots_in``: the folder of the plots, relative to the text."""
    linked = {link.anchor for section in document.sections for link in _all_links(section.blocks)}
    badges = "".join(f" · **{escaped(badge)}**" for badge in document.badges)
    lines = [f"# {escaped(document.title)}{badges}", "", escaped(document.subtitle), ""]
    lines += [f"- [{escaped(one.title)}](#{one.anchor})" for one in document.sections]
    for section in document.sections:
        lines += ["", f'<a id="{section.anchor}"></a>', "", f"## {escaped(section.title)}", ""]
        for block in section.blocks:
            lines += [*_block(block, plots_in, linked), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def plot_files(document: Document) -> dict[str, str]:
    """Text of each plot's file by its name; each with the colours of its own, for light and dark."""
    colours = f":root {{ {css(dark=False)} }} @media (prefers-color-scheme: dark) {{ :root {{ {css(dark=True)} }} }}"
    style = f"<style>{colours} svg {{ background: var(--paper); font-family: system-ui, sans-serif; }}</style>"
    found = {}
    for section in document.sections:
        for plot in _all_plots(section.blocks):
            tag, rest = plot.svg.split(">", 1)
            found[f"{plot.key}.svg"] = f'{tag} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'
    return found


def _block(block: Block, plots_in: str, linked: set[str]) -> list[str]:
    match block:
        case Prose(lines):
            return [line for text in lines for line in (escaped(text), "")][:-1]
        case Bullets(sentences):
            return [_sentence(one) for one in sentences]
        case Facts() | Definitions():
            return _list(block)
        case Tabled():
            return _table(block, linked)
        case Plots(plots, missing):
            return [line for plot in plots for line in _plot(plot, plots_in)] + [escaped(text) for text in missing]
        case Code(text):
            return _fenced(text)
        case Fold(summary, blocks):
            inner = [line for one in blocks for line in (*_block(one, plots_in, linked), "")]
            return ["<details>", f"<summary>{escaped(summary)}</summary>", "", *inner, "</details>"]


def _list(block: Facts | Definitions) -> list[str]:
    if isinstance(block, Facts):
        return pipe_table(TextTable("", "", ["", ""], [list(row) for row in block.rows], left=frozenset({0, 1})))
    return [f'- <a id="{anchor}"></a>**{escaped(term)}**: {escaped(text)}' for term, anchor, text in block.rows]


def _sentence(sentence: Sentence) -> str:
    links = ", ".join(f"[{escaped(link.text)}](#{link.anchor})" for link in sentence.links)
    return f"- {escaped(sentence.text)}" + (f" ({links})" if links else "")


def _table(block: Tabled, linked: set[str]) -> list[str]:
    """Rows that a sentence links to begin with a place to jump to."""
    head, rule, *rows = pipe_table(block.table)
    for number in range(len(rows)):
        anchor = row_anchor(block.key, number)
        if anchor in linked:
            rows[number] = f'| <a id="{anchor}"></a>{rows[number][2:]}'
    title = [f"### {escaped(block.table.title)}", ""] if block.table.title else []
    below = ["", *(f"- {escaped(line)}" for line in block.lines)] if block.lines else []
    return [*title, head, rule, *rows, *below]


def _plot(plot: Plot, plots_in: str) -> list[str]:
    return [
        f"![{escaped(plot.title)}]({plots_in}/{plot.key}.svg)",
        "",
        f"**{escaped(plot.title)}.** {escaped(plot.caption)}",
        "",
    ]


def _fenced(text: str) -> list[str]:
    """A fence that the text itself cannot close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return [fence, *text.rstrip("\n").splitlines(), fence]


def _all_links(blocks: Sequence[Block]) -> Iterator[Link]:
    for block in blocks:
        if isinstance(block, Bullets):
            for sentence in block.sentences:
                yield from sentence.links
        elif isinstance(block, Fold):
            yield from _all_links(block.blocks)


def _all_plots(blocks: Sequence[Block]) -> Iterator[Plot]:
    for block in blocks:
        if isinstance(block, Plots):
            yield from block.plots
        elif isinstance(block, Fold):
            yield from _all_plots(block.blocks)
