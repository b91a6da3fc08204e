# SPDX-License-Identifier: Apache-2.0
"""Check of the database: does its revision fit this release?"""

from __future__ import annotations

from collections.abc import Iterator

from kvflags.errors import KvflagsError
from kvflags_cli.checks import Check, finding, ok
from kvflags_cli.commands.db import revisions

__all__ = ["checks"]


def checks(url: str | None) -> Iterator[Check]:
    if url is None:
        return
    try:
        current, head = revisions(url)
    except KvflagsError as error:
        yield finding("database", error.message, error.hint)
        return
    if current == head:
        yield ok("database", f"at revision {current}")
    else:
        yield finding("database", f"at revision {current or 'none'}, this release needs {head}", "kvflags db upgrade")
