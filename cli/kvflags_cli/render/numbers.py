# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them: with a unit and three digits that mean something. What is absent is `-`, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

__all__ = ["ABSENT", "amount", "count", "milliseconds", "moment", "percent", "ratio", "size", "span", "yes_no"]

ABSENT = "-"

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def count(value: int | None) -> str:
    """1840 -> 1,840."""
    return ABSENT if value is None else f"{value:,}"


def amount(value: float | None) -> str:
    """An average: three significant digits below 1,000, whole above."""
    if value is None:
        return ABSENT
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def milliseconds(times: Mapping[str, float | None] | None, statistic: str) -> str:
    """({"p50": 0.4183}, "p50") -> 0.418 ms."""
    value = (times or {}).get(statistic)
    return ABSENT if value is None else f"{amount(value)} ms"


def size(value: float | None) -> str:
    """Bytes in powers of 1,024: 12582912 -> 12 MiB."""
    if value is None:
        return ABSENT
    unit = 0
    while abs(value) >= 999.5 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.3g} {_SIZES[unit]}"


def percent(share: float | None) -> str:
    """A share of 1: 0.0625 -> 6.25 %."""
    return ABSENT if share is None else f"{share * 100:.3g} %"


def ratio(part: int | None, whole: int | None) -> str:
    """`3 of 1,840`."""
    return ABSENT if part is None or whole is None else f"{part:,} of {whole:,}"


def span(seconds: float | None) -> str:
    """604800 -> 7d; what is no whole number of a unit stays in the next smaller one."""
    if seconds is None:
        return ABSENT
    for length, unit in _SPANS:
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"


def moment(value: str | int | None) -> str:
    """A time in UTC, from RFC 3339 or microseconds: 2026-11-30 22:10:03 UTC."""
    if value is None:
        return ABSENT
    when = datetime.fromisoformat(value) if isinstance(value, str) else datetime.fromtimestamp(value / 1e6, UTC)
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def yes_no(value: bool | None) -> str:
    return ABSENT if value is None else ("yes" if value else "no")
