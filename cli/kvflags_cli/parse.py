# SPDX-License-Identifier: Apache-2.0
"""Values as people write them: `25%`, `7d`, `1h30m`. A wrong one is a usage error that says what is right."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from kvflags.errors import UsageError
from kvflags.settings import id_problem

__all__ = ["duration", "identity", "labels", "moment", "percentage", "ramp_step"]

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([dhms])", re.ASCII)


def duration(text: str, option: str) -> float:
    """Seconds of `7d`, `10m`, `1h30m` or a bare number of seconds. Raises UsageError naming `option`."""
    if _NUMBER.fullmatch(text):
        return float(text)
    pieces = _DURATION.findall(text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        raise UsageError(f"{option}: not a duration: {text!r}", hint="such as 7d, 10m, 1h30m, or a number of seconds")
    return sum(float(number) * _UNITS[unit] for number, unit in pieces)


def identity(text: str, option: str) -> str:
    """The id of a deployment or a generation, as it was given. Raises UsageError naming `option`, and not the value."""
    if wrong := id_problem(text):
        raise UsageError(f"{option}: it {wrong}", hint="such as cluster/namespace/name; see `kvflags deployments list`")
    return text


def labels(pairs: Iterable[str]) -> dict[str, str]:
    """`tier=canary` each. Raises UsageError for what has no name or no value, and for a name given twice."""
    named: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value) or name in named:
            raise UsageError(f"--label: not a label, or named twice: {pair!r}", hint="such as --label tier=canary")
        named[name] = value
    return named


def ramp_step(text: str) -> dict[str, float | int]:
    """`5%` or a count such as `2`, as the API takes a step."""
    if text.strip().endswith("%"):
        return {"percent": percentage(text.strip())}
    if not text.strip().isdecimal():
        raise UsageError(f"--steps: not a percentage or a count: {text!r}", hint="such as 1,2,5 or 1%,5%,25%")
    return {"count": int(text)}


def percentage(text: str) -> float:
    """`25%`, `25` or `12.5%` in percent. Raises UsageError outside 0 to 100, or finer than the buckets' 0.001 %."""
    try:
        value = Decimal(text.removesuffix("%"))
    except InvalidOperation:
        raise UsageError(f"not a percentage: {text!r}", hint="such as 25%") from None
    if not value.is_finite() or not 0 <= value <= 100:
        raise UsageError(f"a percentage lies between 0 and 100, not {text}", hint="such as 25%")
    if value % Decimal("0.001"):
        raise UsageError(f"a percentage has at most three decimals, not {text}", hint="such as 12.5%")
    return float(value)


def moment(text: str, option: str, now: datetime) -> datetime:
    """A time as RFC 3339 has it (UTC where it names no zone), or how long before `now`: `24h`, `7d`.

    Raises UsageError naming `option`.
    """
    with suppress(ValueError):
        when = datetime.fromisoformat(text)
        return when if when.tzinfo else when.replace(tzinfo=UTC)
    with suppress(UsageError, OverflowError):
        return now - timedelta(seconds=duration(text, option))
    raise UsageError(f"{option}: not a time: {text!r}", hint="such as 2027-02-14T12:00:00Z, or 24h for a day ago")
