# SPDX-License-Identifier: Apache-2.0
"""Waiting for a fleet, with a bound: ask, tell what changed, ask again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kvflags_cli.output import say

if TYPE_CHECKING:
    from kvflags_cli.client import Client, Json

__all__ = ["unsettled", "until", "until_none_is_treated", "until_settled"]

# Leases are renewed every 30 s, so that asking more often than this shows nothing sooner.
_EVERY_S = 2.0

T = TypeVar("T")


def until(ask: Callable[[], T], done: Callable[[T], bool], timeout_s: float, says: Callable[[T], str]) -> T:
    """Ask until `done` or the time is over; the last answer. `says` is told on stderr whenever it changes."""
    deadline = time.monotonic() + timeout_s
    told = ""
    while True:
        answer = ask()
        if (now := says(answer)) != told:
            say(told := now)
        left = deadline - time.monotonic()
        if done(answer) or left <= 0:
            return answer
        time.sleep(min(_EVERY_S, left))


def until_none_is_treated(client: Client, key: str, timeout_s: float) -> list[Json]:
    """Count down the treated engines that live; those left when the time is over."""

    def ask() -> list[Json]:
        return client.items("flags", key, "treated")

    return until(ask, lambda items: not items, timeout_s, lambda items: f"{len(items)} treated engines live")


def until_settled(client: Client, key: str, timeout_s: float) -> Json:
    """Wait until every deployment runs what it should, or the rollout was aborted; the last status."""

    def ask() -> Json:
        return client.get("flags", key, "status")

    def done(document: Json) -> bool:
        return not unsettled(document) or document["flag"]["phase"] == "aborted"

    return until(ask, done, timeout_s, _progress)


def unsettled(document: Json) -> list[str]:
    """Deployments with live engines that are condemned, or run what their next generation would not."""
    return [
        item["deployment"]
        for item in document["deployments"]
        if any(one["to_replace"] for one in item["generations"])
        or (item["pending"] and any(one["live_engines"] for one in item["generations"]))
    ]


def _progress(document: Json) -> str:
    names = unsettled(document)
    return f"{len(names)} deployments to replace" + (f": {', '.join(names[:5])}" if names else "")
