# SPDX-License-Identifier: Apache-2.0
"""Checks of the collector and of what its engines told it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from email.utils import parsedate_to_datetime

from kvflags.errors import KvflagsError
from kvflags_cli.checks import Check, finding, ok, skipped
from kvflags_cli.client import Client, Json
from kvflags_cli.settings import connection

__all__ = ["checks", "clock", "expiry", "problems", "roles", "webhook"]

# The header that is compared has whole seconds and the answer takes its way: below this nothing can be said. Engines
# measure their own skew finely and are corrected for it; this is about the clock of the person who reads times.
_SKEW_S = 5.0

_HALVES = ({"prefill"}, {"decode"})

# What to do about the problems that engines report, by code. Settings are reported under their own names.
_HINTS = {
    "nixl_telemetry_disabled": "unset NIXL_TELEMETRY_ENABLE on these engines",
    "refused": "the collector refused their registration; see these engines' logs",
    "state_dir": "set KVFLAGS_STATE_DIR to a directory that these engines can write to",
    "unreachable": "the collector did not answer when they started; see that the network lets them reach it",
}


def checks(collector: str | None, now: Callable[[], float] = time.time) -> Iterator[Check]:
    """Reachability first; without it there is nothing further to ask."""
    try:
        with Client(connection(collector)) as client:
            began = now()
            response = client.probe()
            yield _readiness(client, response.status_code)
            yield clock(response.headers.get("date"), began, now())
            yield from expiry(client.items("flags"))
            yield webhook(client.get("webhook")["webhook"])
            engines = client.items("engines", live="true")
    except KvflagsError as error:
        yield finding("collector", error.message, error.hint)
        return
    yield from roles(engines)
    yield from problems(engines)


def _readiness(client: Client, status: int) -> Check:
    url = client.connection.url
    if status == 200:
        return ok("collector", f"{url} is ready")
    return finding(
        "collector", f"{url} is not ready ({status})", "look at its log; `kvflags db check` tests its database"
    )


def clock(date: str | None, began: float, ended: float) -> Check:
    """The collector's `Date` header against this machine's time around the request, in seconds since 1970."""
    if date is None:
        return skipped("clock", "the collector sends no time")
    theirs = parsedate_to_datetime(date).timestamp()
    # The header is cut to whole seconds: the collector's time was in [theirs, theirs + 1].
    skew = max(began - (theirs + 1), theirs - ended, 0.0)
    if skew <= _SKEW_S:
        return ok("clock", f"within {_SKEW_S:g} s of the collector's")
    return finding("clock", f"{skew:.0f} s away from the collector's", "synchronise both clocks (NTP)")


def expiry(flags: Iterable[Json]) -> Iterator[Check]:
    """A finding for each flag whose day is over: its ramp stands still until somebody decides."""
    late = [flag for flag in flags if flag["expired"]]
    for flag in late:
        hint = f"decide it: kvflags flags extend {flag['key']} --expires DAY, or end and archive it"
        yield finding("expiry", f"{flag['key']} expired on {flag['expires']}", hint)
    if not late:
        yield ok("expiry", "no flag is past its day")


def webhook(found: Json | None) -> Check:
    """A finding while its receiver does not take what it is told, or did not take the last."""
    if found is None:
        return skipped("webhook", "no webhook was ever set")
    if found["error"] is None:
        return ok("webhook", f"{found['delivered']} delivered, {found['waiting']} waiting")
    counts = f"{found['waiting']} waiting, {found['given_up']} given up"
    hint = "look at the receiver and its address (`serve --webhook`); it is tried for seven hours"
    return finding("webhook", f"the last was not taken: {found['error']} ({counts})", hint)


def roles(engines: Iterable[Json]) -> Iterator[Check]:
    """A finding for each deployment none of whose generations has both roles: their labels differ."""
    seen: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for engine in engines:
        if engine["deployment"] is not None:
            seen[engine["deployment"]][engine["generation"]].add(engine["role"])
    apart = [name for name in sorted(seen) if all(roles in _HALVES for roles in seen[name].values())]
    yield from (_one_role_each(name, seen[name]) for name in apart)
    if not apart:
        yield ok("roles", "wherever engines live, prefill and decode share a generation")


def _one_role_each(deployment: str, generations: dict[str, set[str]]) -> Check:
    listed = ", ".join(f"{name} has {next(iter(roles))} only" for name, roles in sorted(generations.items()))
    hint = "set KVFLAGS_GENERATION to the same release label on both, or wait if the other role is still starting"
    return finding("roles", f"{deployment}: {listed}", hint)


def problems(engines: Iterable[Json]) -> Iterator[Check]:
    """What engines say is wrong with themselves, one finding per code."""
    told: dict[str, list[str]] = defaultdict(list)
    for engine in engines:
        for code in engine["problems"]:
            told[code].append(f"{engine['deployment'] or 'unidentified'} {engine['engine_id'] or 'starting'}")
    for code, where in sorted(told.items()):
        yield finding("engines", f"{code} on {'; '.join(sorted(where))}", _hint(code))
    if not told:
        yield ok("engines", "none reports a problem")


def _hint(code: str) -> str:
    if code.startswith("KVFLAGS_"):
        return f"put {code} right on these engines; their logs and `kvflags help environment` say how"
    return _HINTS.get(code, "see these engines' logs")
