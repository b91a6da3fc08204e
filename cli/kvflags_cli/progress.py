# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the commands' docstring: what is heavy is imported when it is needed
"""Progress of long work, on stderr, while somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["advancing", "watched"]

_T = TypeVar("_T")


def watched(results: Iterable[_T], doing: str, total: int) -> Iterable[_T]:
    """The same results, with a bar on a terminal."""
    if not sys.stderr.isatty():
        return results
    from rich.console import Console
    from rich.progress import track

    return track(results, doing, total=total, console=Console(stderr=True), transient=True)


def advancing(results: Iterable[tuple[float, _T]], doing: str) -> Iterator[_T]:
    """The results of (share done by then, result), with a bar on a terminal."""
    if not sys.stderr.isatty():
        yield from (result for _, result in results)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=1.0)
        for share, result in results:
            progress.update(task, completed=share)
            yield result
