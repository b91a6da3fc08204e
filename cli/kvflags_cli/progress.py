# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - see the commands' docstring: what is heavy is imported when it is needed
"""Progress of long work, on stderr, while somebody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["watched"]

_T = TypeVar("_T")


def watched(results: Iterable[_T], doing: str, total: int) -> Iterable[_T]:
    """The same results, with a bar on a terminal."""
    if not sys.stderr.isatty():
        return results
    from rich.console import Console
    from rich.progress import track

    return track(results, doing, total=total, console=Console(stderr=True), transient=True)
