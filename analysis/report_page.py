"""A report as one HTML file that needs nothing else: no script, no network, fonts of the system, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from analysis.figures import SYMBOL
from analysis.report_method import anchor_of
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
    Section,
    Sentence,
    Tabled,
    row_anchor,
)
from analysis.report_theme import css

# A number and the marks behind it, which must not push its digits out of line.
_MARKED = re.compile(rf"^([-+]?[\d.,∞]+)([{re.escape(''.join(SYMBOL.values()))}‡¶†!]+)$")


def page(document: Document) -> str:
    """The whole file."""
    theme = f":root {{ color-scheme: light dark; {css(dark=False)} }}\n"
    theme += f"@media (prefers-color-scheme: dark) {{ :root {{ {css(dark=True)} }} }}\n"
    style = theme + files("analysis").joinpath("report_page.css").read_text(encoding="utf-8")
    body = "\n".join(_section(section) for section in document.sections)
    contents = "".join(f'<li><a href="#{one.anchor}">{_text(one.title)}</a></li>' for one in document.sections)
    badges = "".join(f'<span class="badge">{_text(badge)}</span>' for badge in document.badges)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{_text(document.title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<header><h1>{_text(document.title)} {badges}</h1><p>{_text(document.subtitle)}</p></header>
<div class="columns">
<nav aria-label="Contents"><h2>Contents</h2><ol>{contents}</ol></nav>
<main>
{body}
</main>
</div>
</body>
</html>
"""


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block) for block in section.blocks)
    return f'<section id="{section.anchor}"><h2>{_text(section.title)}</h2>\n{blocks}\n</section>'


def _block(block: Block) -> str:
    match block:
        case Prose(lines):
            return "".join(f"<p>{_text(line)}</p>" for line in lines)
        case Bullets(sentences, warn):
            return f'<ul class="{"warn" if warn else "said"}">{"".join(map(_sentence, sentences))}</ul>'
        case Facts() | Definitions():
            return _list(block)
        case Tabled():
            return _table(block)
        case Plots(plots, missing):
            figures = f'<div class="plots">{"".join(map(_plot, plots))}</div>' if plots else ""
            return figures + "".join(f'<p class="missing">{_text(line)}</p>' for line in missing)
        case Code(text):
            return f'<pre tabindex="0"><code>{escape(text)}</code></pre>'
        case Fold(summary, blocks):
            return f"<details><summary>{_text(summary)}</summary>{''.join(map(_block, blocks))}</details>"


def _list(block: Facts | Definitions) -> str:
    if isinstance(block, Facts):
        return f'<table class="facts">{"".join(map(_fact, block.rows))}</table>'
    return f"<dl>{''.join(map(_definition, block.rows))}</dl>"


def _sentence(sentence: Sentence) -> str:
    return f"<li>{_text(sentence.text)}{_links(sentence.links)}</li>"


def _links(links: Sequence[Link]) -> str:
    if not links:
        return ""
    return (
        ' <span class="rows">' + " ".join(f'<a href="#{one.anchor}">{_text(one.text)}</a>' for one in links) + "</span>"
    )


def _fact(row: tuple[str, str]) -> str:
    return f'<tr><th scope="row">{_text(row[0])}</th><td>{_text(row[1])}</td></tr>'


def _definition(row: tuple[str, str, str]) -> str:
    term, anchor, text = row
    return f'<div id="{anchor}"><dt>{_text(term)}</dt><dd>{_text(text)}</dd></div>'


def _plot(plot: Plot) -> str:
    wide = ' class="wide"' if plot.wide else ""
    caption = f"<figcaption><strong>{_text(plot.title)}.</strong> {_text(plot.caption)}</figcaption>"
    return f'<figure id="{plot.key}"{wide}>{plot.svg}{caption}</figure>'


def _table(block: Tabled) -> str:
    table = block.table
    head = "".join(_head(title, i in table.left) for i, title in enumerate(table.header))
    rows = "".join(
        f'<tr id="{row_anchor(block.key, number)}">{_cells(row, table.fixed, table.left)}</tr>'
        for number, row in enumerate(table.rows)
    )
    title = f'<h3 id="{block.key}">{_text(table.title)}</h3>' if table.title else f'<a id="{block.key}"></a>'
    lines = "".join(f"<li>{_text(line)}</li>" for line in block.lines)
    below = f'<ul class="below">{lines}</ul>' if lines else ""
    shown = f'<div class="table" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return title + shown + below


def _head(title: str, left: bool) -> str:
    anchor = anchor_of(title)
    text = f'<a href="#{anchor}">{_text(title)}</a>' if anchor else _text(title)
    return f'<th scope="col"{_LEFT if left else ""}>{text}</th>'


_LEFT = ' class="left"'


def _cells(row: Sequence[str], fixed: int, left: Iterable[int]) -> str:
    texts = set(left)
    return "".join(
        f'<th scope="row"{_LEFT if i in texts else ""}>{_marked(cell)}</th>'
        if i < fixed
        else f"<td{_LEFT if i in texts else ''}>{_marked(cell)}</td>"
        for i, cell in enumerate(row)
    )


def _marked(cell: str) -> str:
    found = _MARKED.match(cell)
    if found is None:
        return _text(cell)
    return f'{_text(found.group(1))}<span class="mark">{_text(found.group(2))}</span>'


def _text(text: str) -> str:
    """As written, whatever it is: nothing in a report is markup but what this module writes."""
    return escape("".join(c if c.isprintable() else " " for c in text))
