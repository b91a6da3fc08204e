# SPDX-License-Identifier: Apache-2.0
"""Templates and the way figures read on a page: units in words, and a dash where nothing was measured."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from kvflags.inert import inert
from kvflags.states import STANDINGS, VERDICTS
from kvflags_collector.feedback.given import TAGS
from kvflags_collector.verdict.outcomes import Outcome
from kvflags_collector.web import charts, places
from kvflags_collector.web.asked import Asked

__all__ = ["render"]

ABSENT = "–"  # noqa: RUF001 - a dash on purpose

_REASONS = {
    "forced": "an engine's layout is set locally",
    "not_observed": "not observed yet",
    "phase_draft": "from before the rollout",
    "not_decided": "nothing was decided for it",
    "unidentified": "its engines name no deployment",
    "already_running": "it ran before anything was decided",
    "default": "not assigned to an arm",
}


def render(template: str, values: dict[str, Any]) -> str:
    """One page. Everything is escaped; a name that is missing is an error, not an empty place."""
    return _ENVIRONMENT.get_template(template).render(values)


def _count(value: int | None) -> str:
    return ABSENT if value is None else f"{value:,}"


def _amount(value: float | None, unit: str = "") -> str:
    """Three figures, never in powers of ten: 0.00418, 3.14, 2,910."""
    if value is None:
        return ABSENT
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def _size(value: int | None) -> str:
    if value is None:
        return ABSENT
    size, units = float(value), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return _amount(size, units[0])


def _share(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.0%}"


def _yes(value: bool | None) -> str:
    return {True: "yes", False: "no", None: ABSENT}[value]


def _moment(value: str | None) -> str | Markup:
    """RFC 3339 to the minute, UTC; with scripts a reader sees it in their own zone."""
    if value is None:
        return ABSENT
    return Markup('<time datetime="{}">{} UTC</time>').format(value, f"{value[:10]} {value[11:16]}")


def _change(value: float | None, outcome: str) -> str:
    """A ratio less 1: -19 %, with a decimal below ten; rates of failures as factors."""
    if value is None:
        return "unbounded"
    if outcome == Outcome.FAILED_TRANSFERS:
        return f"x{value + 1:.2g}"
    digits = 1 if abs(value) < 0.1 else 0
    # Nothing is "-0.0 %".
    return "0 %" if round(value, 2 + digits) == 0 else f"{100 * value:+.{digits}f} %"


def _interval(one: Mapping[str, Any], outcome: str) -> str:
    if one["change"] is None:
        return ABSENT
    low, high = (_change(one[end], outcome) for end in ("low", "high"))
    return f"{_change(one['change'], outcome)} [{low}, {high}]"


def _rate(value: float | None) -> str:
    """A small share: 0.013 %."""
    return ABSENT if value is None else "0 %" if not value else f"{100 * value:.2g} %"


def _words(code: str) -> str:
    return "KV blocks" if code == Outcome.KV_BLOCKS else code.replace("_", " ")


def _target(value: dict[str, Any] | None) -> str:
    if value is None:
        return ABSENT
    if value["share"] is not None:
        return f"{value['share'] / 1000:g}%"
    return f"{value['count']} deployment" + ("" if value["count"] == 1 else "s")


def _quoted(name: str) -> str:
    """As a shell takes it; nothing stays nothing."""
    return shlex.quote(name) if name else ""


def _because(code: str) -> str:
    """Why something is not compared, in words; a code without any is at least readable."""
    if code.startswith("gate:"):
        return f"the gate refuses ({code.removeprefix('gate:')})"
    return _REASONS.get(code, code.replace("_", " "))


def _view(asked: Mapping[str, Any], **other: str | int) -> str:
    """The address of the view that a document shows, some of it changed."""
    return Asked(**asked).address(**other)


def _finally(value: object) -> object:
    """What an expression came to, as it is put in: text of others may not turn the direction of what follows it."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return inert(value)


_ENVIRONMENT = Environment(
    loader=PackageLoader("kvflags_collector.web"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finally,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.globals.update(
    verdicts=VERDICTS,
    standings=STANDINGS,
    forest=charts.forest,
    area=charts.area,
    line=charts.line,
    place=places.deployment,
    view=_view,
    tags=TAGS,
)
_ENVIRONMENT.filters.update(
    amount=_amount,
    because=_because,
    change=_change,
    count=_count,
    interval=_interval,
    moment=_moment,
    quoted=_quoted,
    rate=_rate,
    share=_share,
    size=_size,
    target=_target,
    words=_words,
    yes=_yes,
)
