# SPDX-License-Identifier: Apache-2.0
"""The one place where the collector is put together: routes, and the threads behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from fastapi import FastAPI

from kvflags import __version__
from kvflags_collector.access.guard import Guard
from kvflags_collector.access.keyring import Keyring
from kvflags_collector.access.sessions import Sessions
from kvflags_collector.api import (
    canaries,
    deployments,
    engines,
    errors,
    feedback,
    files,
    flags,
    health,
    hub,
    metrics,
    ofrep,
    rollout_metrics,
    steering,
    tokens,
    webhook,
)
from kvflags_collector.api.context import State
from kvflags_collector.api.limits import BodyLimit, PlainNames
from kvflags_collector.ingest import http
from kvflags_collector.ingest.instruments import Instruments
from kvflags_collector.ingest.keeper import Keeper
from kvflags_collector.ingest.receiver import Receiver
from kvflags_collector.ingest.writer import Writer
from kvflags_collector.judge.freeze import Judge
from kvflags_collector.rollout.tick import Ticker
from kvflags_collector.settings import Settings
from kvflags_collector.store.database import Database
from kvflags_collector.store.retention import Maintainer
from kvflags_collector.store.rollups import Roller
from kvflags_collector.times import now_us
from kvflags_collector.web import answers, login, pages
from kvflags_collector.web.kept import Kept
from kvflags_collector.webhook.messenger import Messenger

__all__ = ["create_app"]


_ROUTERS = (
    health.router,
    metrics.router,
    engines.router,
    canaries.router,
    feedback.router,
    files.router,
    flags.router,
    steering.router,
    deployments.router,
    tokens.router,
    webhook.router,
    hub.router,
    ofrep.router,
)


class _Worker(Protocol):
    """A thread with a life as long as the app's. Both calls block, so neither runs on the event loop."""

    def start(self) -> None: ...

    def close(self) -> None: ...


def create_app(settings: Settings, db: Database, *, clock: Callable[[], int] = now_us) -> FastAPI:
    """The ASGI application over an open database, which the caller closes. `clock` gives microseconds, UTC."""
    writer, keeper = Writer(db, clock=lambda: clock() * 1000), Keeper(db)
    receiver = Receiver(writer, keeper, clock=lambda: clock() * 1000)
    roller = Roller(db, clock=clock)
    ticker = Ticker(db, settings.timing, clock)
    keyring = Keyring(db, tokenless=settings.tokenless, clock=clock)
    judge, maintainer = Judge(db, clock=clock), Maintainer(db, settings.retention, clock=clock)
    kept, sessions = Kept(db, clock), Sessions(db, keyring, clock)

    workers: list[_Worker] = [ticker, roller, judge, maintainer, keyring, sessions, keeper, writer, kept]
    if settings.webhook:
        workers.append(Messenger(db, settings.webhook, clock))

    def alive() -> bool:
        return ticker.alive and writer.alive and keeper.alive

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # In this order, and closed in the reverse one: the ticker first, since it mends leases after an outage before
        # anybody asks; the writer last, so that it ends first, while the roller still counts what it stored.
        async with AsyncExitStack() as stack:
            for worker in workers:
                await stack.enter_async_context(_running(worker))
            yield
            await asyncio.gather(*app.state.draining)

    # The pages for the API are off: they load their scripts from elsewhere, which a closed network cannot.
    app = FastAPI(
        title="kvflags",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=errors.RESPONSES,
    )
    app.state.kvflags = State(db=db, timing=settings.timing, clock=clock, alive=alive, hub=settings.hub)
    # For the server that speaks gRPC beside us, too.
    app.state.receiver, app.state.keyring = receiver, keyring
    # What it still answers when we are told to stop: the threads are needed until then.
    app.state.draining = []
    _install_middleware(app, keyring, sessions, receiver.instruments)
    receiver.instruments.registry.register(metrics.Measured(db, receiver, lambda: writer.duplicates, clock))
    receiver.instruments.registry.register(rollout_metrics.Rollouts(db, kept.evidence, clock))
    errors.install(app)
    for router in _ROUTERS:
        app.include_router(router)
    shown, app.state.live = pages.routes(db, kept, sessions, clock, is_hub=settings.hub)
    app.router.routes.extend([*http.routes(receiver), *shown])
    return app


def _install_middleware(app: FastAPI, keyring: Keyring, sessions: Sessions, instruments: Instruments) -> None:
    """From the innermost to the outermost."""
    app.add_middleware(BodyLimit)
    app.add_middleware(PlainNames, on_page=answers.failed)
    # Outside of it, since nothing is read before the guard has let a request in; what it refuses is counted too.
    app.add_middleware(Guard, keyring=keyring, sessions=sessions, on_page=login.denied)
    app.add_middleware(metrics.Counted, instruments=instruments)


@asynccontextmanager
async def _running(worker: _Worker) -> AsyncIterator[None]:
    await asyncio.to_thread(worker.start)
    try:
        yield
    finally:
        await asyncio.to_thread(worker.close)
