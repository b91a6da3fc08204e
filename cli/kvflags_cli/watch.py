# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the package's docstring: what is heavy is imported when it is needed
"""Watching a rollout: ask every two seconds, show what changed, and go on when the collector is away for a while."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvflags.errors import KvflagsError
from kvflags_cli.exit_codes import ExitCode, exit_code
from kvflags_cli.output import console, put, say, stream

if TYPE_CHECKING:
    from kvflags_cli.client import Client

__all__ = ["watch"]

Json = dict[str, Any]

# Sooner would show no more: engines are heard every 30 s, and the collector keeps what is dear for its readers.
_EVERY_S = 2.0


@dataclass(frozen=True, slots=True)
class _Look:
    """The rollout as it was last seen. silence: why this look saw nothing new; empty when it did."""

    document: Json
    silence: str = ""


def watch(client: Client, key: str, *, as_json: bool) -> None:
    """Until the keyboard interrupts. A tree in a terminal; else a line for each change, or a document for each.

    Raises KvflagsError when the first look fails, and later for whatever asking again cannot mend.
    """
    seen = _looks(client, key)
    if as_json:
        _documents(seen)
    elif sys.stdout.isatty():
        _live(seen)
    else:
        _lines(seen)


def _looks(client: Client, key: str) -> Iterator[_Look]:
    from kvflags_cli.overview import overview

    last = overview(client.page(key))
    yield _Look(last)
    while True:
        time.sleep(_EVERY_S)
        try:
            last = overview(client.page(key))
        except KvflagsError as error:
            if exit_code(error) != ExitCode.UNREACHABLE:
                raise
            yield _Look(last, error.message)
        else:
            yield _Look(last)


def _documents(seen: Iterator[_Look]) -> None:
    from kvflags_cli.overview import same

    shown: Json | None = None
    for look in _telling_silence(seen):
        if shown is None or not same(shown, look.document):
            stream("rollout", shown := look.document)


def _lines(seen: Iterator[_Look], clock: Callable[[], float] = time.time) -> None:
    from kvflags_cli.render.changes import changes
    from kvflags_cli.render.numbers import moment

    shown: Json | None = None
    for look in _telling_silence(seen):
        at = moment(round(clock() * 1e6))
        for line in changes(shown, look.document):
            put(f"{at}  {line}")
        shown = look.document


def _telling_silence(seen: Iterator[_Look]) -> Iterator[_Look]:
    """Say on stderr when the collector falls silent and when it is back; the looks that saw something."""
    silent = False
    for look in seen:
        if look.silence and not silent:
            say(f"{look.silence}; still watching")
        elif silent and not look.silence:
            say("the collector answers again")
        silent = bool(look.silence)
        if not silent:
            yield look


def _live(seen: Iterator[_Look]) -> None:
    from rich.live import Live

    from kvflags_cli.render.overview import tree

    with Live(console=console(), auto_refresh=False) as live:
        for look in seen:
            live.update(tree(look.document, note=look.silence), refresh=True)
