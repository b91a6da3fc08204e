# SPDX-License-Identifier: Apache-2.0
"""The report as GitHub's Markdown, for a pull request's thread. What a fleet sent stays text: no link, mention, tag."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvflags_cli.render.written.sections import Section, recommendation, sections, title

__all__ = ["escaped", "markdown"]

_MARKS = re.compile(r"([\\`*_\[\]~|])")
# A mention, a reference to an issue and a bare address are made of their first characters: a zero-width space after
# those leaves what is read as it was and makes nothing of it.
_ACTS = re.compile(r"(@|#(?=\d)|GH-(?=\d)|:(?=//)|www\.)", re.IGNORECASE)


def markdown(document: dict[str, Any]) -> str:
    """`document` is the report, schema kvflags.report/1."""
    lines = [f"## {escaped(title(document))}", "", f"**{escaped(recommendation(document))}**"]
    for section in sections(document):
        lines += ["", f"### {escaped(section.title)}", *_body(section)]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """One line that reads as `text` and means nothing more."""
    plain = "".join(one if one.isprintable() else " " for one in text)
    plain = plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _ACTS.sub("\\1\u200b", _MARKS.sub(r"\\\1", plain))


def _body(section: Section) -> Iterator[str]:
    if section.lines:
        yield ""
    for line in section.lines:
        yield f"- {escaped(line)}"
    if section.rows:
        yield ""
        yield _row(section.columns)
        yield "|" + " --- |" * len(section.columns)
        yield from map(_row, section.rows)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(map(escaped, cells)) + " |"
