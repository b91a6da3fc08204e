# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: what this collector counted, and what the database says of the fleet and of the roll-ups' lag."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable

from fastapi import APIRouter, Request, Response
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvflags import __version__
from kvflags_collector.access.rules import rule_for
from kvflags_collector.ingest.instruments import Instruments
from kvflags_collector.ingest.receiver import Receiver
from kvflags_collector.logs import Seldom
from kvflags_collector.store.control_tables import alarms, engines
from kvflags_collector.store.database import Database
from kvflags_collector.store.rollup_tables import dirty_minutes
from kvflags_collector.times import SECOND
from kvflags_collector.webhook import outbox

__all__ = ["Counted", "Measured", "router"]

_log = logging.getLogger(__name__)

router = APIRouter(tags=["health"])

# Routes take these; anything else that a client makes up is one series.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@router.get("/metrics", response_class=Response)
def metrics(request: Request) -> Response:
    """OpenMetrics, or Prometheus' own text format where that is what is asked for."""
    instruments: Instruments = request.app.state.receiver.instruments
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(instruments.registry), headers={"Content-Type": content_type})


class Measured(Collector):
    """What is looked up at each scrape. Blocks, so it is scraped in a thread."""

    def __init__(
        self, db: Database, receiver: Receiver, duplicates: Callable[[], int], clock: Callable[[], int]
    ) -> None:
        self._db, self._receiver, self._duplicates, self._clock = db, receiver, duplicates, clock

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: being registered must not ask the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily("kvflags_collector", "This collector", {"version": __version__})
        budget = self._receiver.budget
        yield GaugeMetricFamily("kvflags_ingest_queue_bytes", "Bytes between first byte and commit", budget.used)
        yield GaugeMetricFamily("kvflags_ingest_queue_limit_bytes", "Beyond it requests are refused", budget.limit)
        says = "Requests that were stored before, told by their hash"
        yield CounterMetricFamily("kvflags_ingest_duplicate_requests", says, self._duplicates())
        yield from self._of_the_database()

    def _of_the_database(self) -> Iterable[Metric]:
        now = self._clock()
        lost = [func.coalesce(func.sum(column), 0) for column in (engines.c.dropped_spans, engines.c.dropped_events)]
        with self._db.read() as conn:
            live = conn.scalar(select(func.count()).select_from(engines).where(engines.c.lease_until_us > now))
            spans, events = conn.execute(select(*lost)).one()
            oldest = conn.scalar(select(func.min(dirty_minutes.c.minute_us)))
            standing = conn.scalar(select(func.count()).select_from(alarms).where(alarms.c.ended_us.is_(None)))
            webhook = outbox.standing(conn)
        yield GaugeMetricFamily("kvflags_engines", "Engines with a lease", live)
        dropped = CounterMetricFamily("kvflags_engine_dropped_items", "What engines could not send", labels=["kind"])
        dropped.add_metric(["spans"], float(spans))
        dropped.add_metric(["events"], float(events))
        yield dropped
        yield GaugeMetricFamily("kvflags_alarms", "Alarms that stand", standing)
        if webhook:
            told = GaugeMetricFamily("kvflags_webhook_events", "What the webhook tells, by state", labels=["state"])
            for state in ("delivered", "waiting", "given_up"):
                told.add_metric([state], float(getattr(webhook, state)))
            yield told
        lag = 0.0 if oldest is None else max(0, now - oldest) / SECOND
        yield GaugeMetricFamily("kvflags_rollup_lag_seconds", "Age of the oldest minute not rolled up", lag)


class Counted:
    """ASGI middleware: counts each answer under its route, and gives a refusal an id, in its headers and in the log."""

    def __init__(self, app: ASGIApp, instruments: Instruments) -> None:
        self._app, self._instruments = app, instruments
        self._seldom = Seldom(_log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._instruments.answered(method, _place(scope), message["status"])
                if message["status"] >= 400:
                    _mark(message, method, _place(scope))
                if message["status"] == 503:
                    # What all are told while the database cannot answer, hundreds of times a second.
                    self._seldom.say(logging.WARNING, "requests are answered with 503, and come again")
            await send(message)

        return await self._app(scope, receive, counting)


def _mark(message: Message, method: str, place: str) -> None:
    name = secrets.token_hex(8)
    MutableHeaders(scope=message)["X-Request-Id"] = name
    told = {"request_id": name, "method": method, "route": place, "status": message["status"]}
    ours = message["status"] >= 500 and message["status"] != 503
    _log.log(logging.WARNING if ours else logging.INFO, "request refused", extra=told)


def _place(scope: Scope) -> str:
    """The route's template; the place that the rules of access name where no route of the API was reached."""
    if route := getattr(scope.get("route"), "path", None):
        return str(route)
    rule = rule_for(scope["method"], scope["path"])
    return rule.place if rule else "elsewhere"
