# SPDX-License-Identifier: Apache-2.0
"""Ranges of releases as a flag states them: `>=0.30,<0.33`. Only numbers count; a suffix such as `.post1` does not."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

__all__ = ["in_range", "range_problem"]

_BOUND = re.compile(r"(>=|<=|==|>|<)\s*(\d+(?:\.\d+){1,2})", re.ASCII)
_RELEASE = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?", re.ASCII)
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}


def range_problem(text: str) -> str:
    """What is wrong with a range, in words; empty for a good one and for none."""
    bad = [bound for bound in _bounds(text) if not _BOUND.fullmatch(bound)]
    return f"{bad[0]!r} is no bound, such as >=0.30" if bad else ""


def in_range(release: str | None, text: str) -> bool:
    """Whether a release meets every bound; one that cannot be read meets none. ("0.32.1", ">=0.30,<0.33") -> True."""
    bounds = [_BOUND.fullmatch(bound) for bound in _bounds(text)]
    found = _RELEASE.match(release or "")
    if not bounds:
        return True
    return found is not None and all(
        bound is not None and _COMPARE[bound[1]](_numbers(found[0]), _numbers(bound[2])) for bound in bounds
    )


def _bounds(text: str) -> list[str]:
    return [bound.strip() for bound in text.split(",") if bound.strip()]


def _numbers(release: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in release.split("."))
    return (*numbers, *(0,) * (3 - len(numbers)))
