# SPDX-License-Identifier: Apache-2.0
"""Every way in which two looks at a rollout differ, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from kvflags_cli.render.flags import target
from kvflags_cli.render.numbers import count, moment, percent, ratio
from kvflags_cli.render.report_effects import effect, named
from kvflags_cli.render.words import standing, verdict

__all__ = ["changes", "realised"]

# A fact: what has to differ for it to be a change, and how it reads.
_Fact = tuple[object, str]


def changes(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> Iterator[str]:
    """A line for each fact that is new or differs, and for each that is gone; of the first look, all of them."""
    was, now = dict(_facts(before)) if before else {}, dict(_facts(after))
    for name, (mark, says) in now.items():
        if name not in was or was[name][0] != mark:
            yield f"{name}: {says}"
    yield from (f"{name}: over" for name in was if name not in now)


def realised(document: Mapping[str, Any]) -> str:
    """`6.25 %: 2 of 32 treated`."""
    found = document["realised"]
    return f"{percent(found['share'])}: {ratio(found['treated'], found['treated'] + found['control'])} treated"


def _facts(document: Mapping[str, Any]) -> Iterator[tuple[str, _Fact]]:
    for name, says in _state(document):
        yield name, (says, says)
    for one in document["health"]:
        # A count of what was dropped grows with every look; that it began, or ended, is the news.
        yield one["name"].lower(), (one["standing"], f"{standing(one['standing'])} {_value(one)}({one['says']})")
    for one in document["graduation"]["criteria"]:
        # A number of days grows with every look; that it is enough is the news.
        yield f"criterion {one['says']}", (one["met"], f"{'' if one['met'] else 'not '}met ({one['detail']})")
    if expires := document["graduation"]["expires"]:
        expired = document["graduation"]["expired"]
        yield "expires", ((expires, expired), f"{expires}{', EXPIRED' if expired else ''}")
    for one in document["outcomes"]:
        change, interval = effect(one)
        says = f"{standing(one['standing'])} {change} [{interval}], limit {one['limit']}"
        yield named(one), (says, says)
    for one in document["alarms"]:
        yield f"alarm {one['kind']} {one['deployment']} {one['generation']}", (one["says"], one["says"])


def _state(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    flag, banner = document["flag"], document["banner"]
    last = banner["last_change"]
    yield "verdict", f"{verdict(banner['state'])}: {' '.join(banner['why'])} {banner['next']}"
    yield "phase", f"{flag['phase']}{', KILL SWITCH SET' if flag['kill_switch'] else ''}"
    yield "revision", f"{flag['revision']}, {last['action']} by {last['author']}: {last['reason']}"
    yield "target", f"{target(flag['target'])}, realised {realised(document)}"
    if ramp := document["ramp"]:
        yield "ramp", _step(ramp)
        yield "next step", "; ".join(_waits(ramp)) or "waits for nothing"
    yield "running treated", f"{count(banner['treated_engines'])} engines"
    yield "to replace", f"{count(document['replacing']['engines'])} engines"


def _step(ramp: Mapping[str, Any]) -> str:
    steps, at = ramp["steps"], ramp["at"]
    return f"step {at + 1} of {len(steps)}, {steps[at]['says']}" if at >= 0 else f"before step 1 of {len(steps)}"


def _waits(ramp: Mapping[str, Any]) -> list[str]:
    """What the next step waits for, with the end of its time in place of how much of it is over."""
    return [f"time: until {_until(ramp)}" if one.startswith("time:") else one for one in ramp["waiting_for"]]


def _until(ramp: Mapping[str, Any]) -> str:
    since = datetime.fromisoformat(ramp["since"])
    return moment((since + timedelta(seconds=ramp["steps"][ramp["at"]]["hold_s"])).isoformat())


def _value(one: Mapping[str, Any]) -> str:
    return "" if one["value"] is None else f"{one['value']} "
