# SPDX-License-Identifier: Apache-2.0
"""Time as the collector keeps it: UTC in integer microseconds inside, RFC 3339 outside. Callers pass `now` in."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import overload

__all__ = ["SECOND", "from_rfc3339", "lasting", "now_us", "parsed", "rfc3339"]

SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def now_us() -> int:
    """The system's clock."""
    return time.time_ns() // 1_000


@overload
def rfc3339(us: int) -> str: ...
@overload
def rfc3339(us: None) -> None: ...
@overload
def rfc3339(us: int | None) -> str | None: ...
def rfc3339(us: int | None) -> str | None:
    """(0) -> "1970-01-01T00:00:00.000000Z"; None stays None."""
    if us is None:
        return None
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def from_rfc3339(text: str) -> int:
    """("1970-01-01T00:00:01Z") -> 1_000_000. ValueError for what is no time."""
    return parsed(datetime.fromisoformat(text))


def parsed(moment: datetime) -> int:
    """A time with its zone in microseconds; one without a zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // timedelta(microseconds=1)


def lasting(us: int) -> str:
    """A length of time for people: (90_000_000) -> "1.5 min"."""
    seconds = us / SECOND
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(seconds, 1):g} s"
