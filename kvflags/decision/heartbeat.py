# SPDX-License-Identifier: Apache-2.0
"""The engine's stream of heartbeats: one daemon thread in the rank-0 worker, from registered caches to shutdown.

It also owns registering anew: where the front end could not reach the collector, or the collector has forgotten us
(404). What the engine does is frozen by then, so a decision that comes back late only changes what later spans say.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from kvflags.decision import answer, last_heard
from kvflags.decision.answer import adopted
from kvflags.decision.carry import Carried
from kvflags.decision.client import Client, ClientError
from kvflags.decision.deaths import Mark
from kvflags.decision.registration import codes
from kvflags.decision.state import State
from kvflags.errors import KvflagsError
from kvflags.flags import Decision
from kvflags.settings import Settings

__all__ = ["Heartbeats"]

# A lease is 3 heartbeats (90 s). After a failure the next try comes after 1, 2, 4 ... s, so that one lost packet costs
# seconds of the lease and a long outage no more requests than usual.
_FIRST_PAUSE_S = 1.0

# Bounds how long a stop can find the thread inside a call; the stop itself waits for less.
_CALL_S = 2.0
_STOP_S = 0.8


def _clock() -> datetime:
    return datetime.now(UTC)


def _client(carried: Carried, settings: Settings) -> Client | None:
    if carried.url is None or carried.url.startswith("file:"):
        return None
    return Client(carried.url, settings.token, _CALL_S, ca_file=settings.ca_file, state_dir=settings.state_dir)


class Heartbeats:
    """One stream, under one engine id. Nothing of it raises into the engine, and `update` never waits for the network.

    `ranks` is the number of workers of the engine. `on_identity(decision)` is called on our thread when spans have to
    carry another identity from now on: another epoch, flag or arm.
    """

    def __init__(
        self,
        settings: Settings,
        carried: Carried,
        engine_id: str,
        ranks: int,
        *,
        on_identity: Callable[[Decision], None] = lambda _: None,
        clock: Callable[[], datetime] = _clock,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._settings, self._carried, self._engine_id = settings, carried, engine_id
        self._on_identity, self._clock, self._jitter = on_identity, clock, jitter
        self._registered = carried.registered
        self._interval = carried.heartbeat_s
        self._pause = _FIRST_PAUSE_S
        self._seq = 0
        self._lock = threading.Lock()
        self._known: dict[str, Any] = {"ranks": ranks, "facts": {}, "layout": {}, "exercised": {}, "dropped": {}}
        self._problems = list(carried.problems)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()
        self._client = _client(carried, settings)
        self._state = State.of(settings)
        self._mark = self._state and Mark(self._state, carried.role, carried.registration_id, engine_id)

    def start(self) -> None:
        """Once, when the caches are registered and no process will be forked any more."""
        if self._client is None or self._thread is not None:
            return
        if self._mark:
            problems: list[str] = []
            self._mark.leave(problems)
            self.update(problems=problems)
        self._thread = threading.Thread(target=self._run, name="kvflags-heartbeat", daemon=True)
        self._thread.start()

    def update(
        self,
        *,
        facts: Mapping[str, Any] | None = None,
        layout: Mapping[str, Any] | None = None,
        exercised: Mapping[str, int] | None = None,
        dropped: Mapping[str, int] | None = None,
        problems: Iterable[str] = (),
    ) -> None:
        """What is known now; goes out with the next heartbeat. From any thread, in microseconds. None: as before."""
        news = {"facts": facts, "layout": layout, "exercised": exercised, "dropped": dropped}
        with self._lock:
            for name, value in news.items():
                if value is not None:
                    self._known[name] = {**self._known[name], **value}
            self._problems = codes([*self._problems, *problems])

    def stop(self) -> None:
        """End the stream with a last heartbeat: a clean stop of the engine. Returns within 1 s, even if a call hangs.

        Can be repeated.
        """
        self._stopping.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_STOP_S)
        if self._mark:
            self._mark.clean(ran=True)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self._turn())
        # The last counts of an engine that stops. Not where they would only wait: in an outage, or before it was known.
        if self._registered and self._pause == _FIRST_PAUSE_S:
            self._turn()

    def _turn(self) -> float:
        """One heartbeat, with a registration before it where one is due; the seconds until the next."""
        try:
            self._beat()
        except Exception as error:  # noqa: BLE001 (a daemon thread has nobody to raise to)
            self._warn(error)
            pause, self._pause = self._pause, self._pause * 2
            return min(pause, self._interval) * (0.5 + self._jitter() / 2)
        self._pause = _FIRST_PAUSE_S
        # Engines that were started together should not beat together.
        return self._interval * (0.9 + self._jitter() / 10)

    def _beat(self) -> None:
        assert self._client is not None
        if not self._registered:
            self._register(self._client)
        try:
            self._client.heartbeat(self._carried.registration_id, self._body())
        except ClientError as error:
            if error.status != 404:
                raise
            self._registered = False
            self._register(self._client)
            self._client.heartbeat(self._carried.registration_id, self._body())

    def _body(self) -> dict[str, Any]:
        with self._lock:
            self._seq += 1
            return {
                "seq": self._seq,
                "engine_id": self._engine_id,
                "clock": self._clock().isoformat().replace("+00:00", "Z"),
                **self._known,
                "problems": self._problems,
            }

    def _register(self, client: Client) -> None:
        with self._lock:
            registration = self._carried.registration
            facts = {**registration.get("facts", {}), **self._known["facts"]}
            running = {"running": self._carried.variant, "facts": facts, "problems": self._problems}
        told = answer.read(client.register({**registration, **running}))
        self._registered, self._interval = True, told.heartbeat_s
        if told.decision is not None:
            self._adopt(told.decision)

    def _adopt(self, decision: Decision) -> None:
        if self._state and not self._carried.local and not self._carried.registration.get("refused"):
            # As it was heard, so that the next start in this generation follows the pin even where this one could not.
            problems: list[str] = []
            last_heard.remember(self._state, decision, problems)
            self.update(problems=problems)
        self._on_identity(adopted(self._carried, decision))

    def _warn(self, error: Exception) -> None:
        """Each kind of trouble once: an outage of hours must not fill the engine's log."""
        kind = type(error).__name__
        if kind in self._warned:
            return
        self._warned.add(kind)
        says = error.message if isinstance(error, KvflagsError) else repr(error)
        logging.getLogger("vllm.kvflags").warning("kvflags: heartbeat: %s (said once; retried)", says)
