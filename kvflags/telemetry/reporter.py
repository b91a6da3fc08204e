# SPDX-License-Identifier: Apache-2.0
"""The front end's export thread: outcomes, once a minute. It never raises into the host and ends within 1 s."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kvflags.telemetry.answer import Outcome, Way

if TYPE_CHECKING:
    from kvflags.telemetry.metrics import Report

__all__ = ["INTERVAL", "Reporter"]

# The SDK's own setting, in ms.
INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_INTERVAL_MS = 60_000
_LEAST_MS, _MOST_MS = 100, 3_600_000
_SHUTDOWN_S = 1.0
# An hour's exports at 3 kB for each engine: what an outage of the collector may keep. Then the oldest are lost.
_KEPT = 60

_log = logging.getLogger("vllm.kvflags")


class Reporter:
    """One daemon thread for all engines of a front end.

    reports: ends the current interval of each engine; called on the thread, once an interval and once at the end.
    """

    def __init__(
        self,
        reports: Callable[[], Sequence[Report]],
        url: str,
        token: str | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._reports = reports
        self._address = (url, token)
        self._environ = environ
        self._interval_s = _interval_ms(environ) / 1000
        self._bodies: deque[bytes] = deque()
        self._wire: Way | None = None
        self._warned = False
        self._stop = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="kvflags-outcomes", daemon=True)

    def start(self) -> None:
        """Call once, when nothing will be forked any more."""
        self._thread.start()

    def shutdown(self, timeout_s: float = _SHUTDOWN_S) -> None:
        """Send what is left, for at most that long. Harmless where the thread does not run, as in a forked child."""
        self._deadline = time.monotonic() + timeout_s
        self._stop.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        _prepare()
        # Engines that were started together should not report together.
        while not self._stop.wait(self._interval_s * random.uniform(0.9, 1.0)):  # noqa: S311 (no secret)
            self._pass()
        self._pass()
        if self._wire is not None:
            self._wire.close()

    def _pass(self) -> None:
        try:
            self._keep()
            while self._bodies and self._sent(self._bodies[0]):
                self._bodies.popleft()
            if self._wire is not None:
                self._wire.rest()
        except Exception:  # noqa: BLE001 (ours alone: the engine does not depend on this thread)
            self._warn("a minute of outcomes was lost", exc_info=True)

    def _keep(self) -> None:
        from kvflags.telemetry.metrics import encode  # noqa: PLC0415 (see _prepare)

        if body := encode(self._reports()):
            self._bodies.append(body)
        if len(self._bodies) > _KEPT:
            self._bodies.popleft()
            self._warn(f"the collector has not taken outcomes for {_KEPT} exports; the oldest are lost")

    def _sent(self, body: bytes) -> bool:
        """Whether it is done with, either way. A body is sent again unchanged, so that it is known as the same."""
        from kvflags.telemetry.wire import way  # noqa: PLC0415 (see _prepare)

        if self._wire is None:
            self._wire = way(*self._address, self._environ, "metrics")
        if self._stop.is_set():
            self._wire.timeout_s = max(0.05, self._deadline - time.monotonic())
        answer = self._wire.send(body)
        if answer.outcome is Outcome.REFUSED or answer.rejected:
            self._warn(f"the collector refused outcomes: {answer.says or f'{answer.rejected} data points'}")
        return answer.outcome is not Outcome.LATER

    def _warn(self, says: str, *, exc_info: bool = False) -> None:
        """Once: what goes wrong every minute must not fill the engine's log."""
        if not self._warned:
            self._warned = True
            _log.warning("kvflags: %s (said once)", says, exc_info=exc_info)


def _prepare() -> None:
    """Not left to the first export, which may be the last: a shutdown is too short for 0.2 s of importing."""
    import kvflags.telemetry.metrics  # noqa: PLC0415 (not on the front end's thread)
    import kvflags.telemetry.wire  # noqa: F401, PLC0415 (as above)
    from kvflags.telemetry.resource import operators  # noqa: PLC0415 (as above)

    operators()


def _interval_ms(environ: Mapping[str, str]) -> int:
    text = environ.get(INTERVAL, "")
    return min(max(int(text), _LEAST_MS), _MOST_MS) if text.isdigit() else _INTERVAL_MS
