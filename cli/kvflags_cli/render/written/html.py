# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML file: no script, nothing loaded, everything escaped. It reads in a mail and prints."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from kvflags_cli.render.written.sections import Section, recommendation, sections, title

__all__ = ["html"]

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }}
body {{ overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; margin: .5rem 0; display: block; overflow-x: auto; }}
th, td {{ text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid #8886; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p><strong>{recommendation}</strong></p>
"""


def html(document: dict[str, Any]) -> str:
    """`document` is the report, schema kvflags.report/1."""
    head = _HEAD.format(title=_safe(title(document)), recommendation=_safe(recommendation(document)))
    body = "\n".join(line for section in sections(document) for line in _body(section))
    return f"{head}{body}\n</main>\n</body>\n</html>\n"


def _body(section: Section) -> Iterator[str]:
    yield f"<h2>{_safe(section.title)}</h2>"
    for line in section.lines:
        yield f"<p>{_safe(line)}</p>"
    if section.rows:
        yield f"<table>\n<thead>{_row('th', section.columns)}</thead>\n<tbody>"
        yield from (_row("td", cells) for cells in section.rows)
        yield "</tbody>\n</table>"


def _row(cell: str, values: tuple[str, ...]) -> str:
    scope = ' scope="col"' if cell == "th" else ""
    return "<tr>" + "".join(f"<{cell}{scope}>{_safe(value)}</{cell}>" for value in values) + "</tr>"


def _safe(text: str) -> str:
    return escape("".join(one if one.isprintable() else " " for one in text), quote=True)
