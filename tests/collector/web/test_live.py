# SPDX-License-Identifier: Apache-2.0
"""Events to open pages: over real sockets, from real collectors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
from guarded import Guarded
from listening import listening
from starlette.applications import Starlette

from kvflags.errors import NotFound, Unavailable
from kvflags_cli.demo.pair import free_port
from kvflags_cli.demo.service import Service
from kvflags_collector.access.scopes import Scope
from kvflags_collector.app import create_app
from kvflags_collector.rollout import course, flags
from kvflags_collector.settings import Settings
from kvflags_collector.web.live import Live

EVERY_S = 0.1
# What is waited for longer is a machine that others use, too.
PATIENCE_S = 30


class _Source:
    """One open page's connection: `next()` gives the next event's data."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()

    def next(self) -> str:
        for line in self._lines:
            if line.startswith("data: "):
                return line.removeprefix("data: ")
        raise EOFError

    def ends(self) -> bool:
        """Whether the collector ends it, in good order; blocks until then."""
        return all(True for _ in self._lines)


@contextmanager
def _open(url: str, **headers: str) -> Iterator[_Source]:
    with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_S, trust_env=False) as answer:
        assert answer.status_code == 200, answer.read()
        yield _Source(answer)


class _Page:
    """A page of which a test sets the version. `asked`: how often it was looked up."""

    def __init__(self, **live) -> None:
        self.said, self.asked, self.problem = "one", 0, None
        self.live = Live(every_s=EVERY_S, **live)
        self.app = Starlette(routes=[self.live.route("/events", self._version)])

    def _version(self, _) -> str:
        self.asked += 1
        if self.problem:
            raise self.problem
        return self.said


def _until(condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_who_listens_is_told_the_version_and_then_every_other():
    page = _Page()
    with listening(page.app) as url, _open(f"{url}/events") as source:
        assert source.answer.headers["content-type"].startswith("text/event-stream")
        assert source.answer.headers["cache-control"] == "no-store"
        for version in ("one", "two", "three"):
            page.said = version
            assert source.next() == version


def test_many_who_read_one_page_cost_one_look_at_it():
    page = _Page()
    with listening(page.app) as url, ExitStack() as opened:
        sources = [opened.enter_context(_open(f"{url}/events")) for _ in range(20)]
        assert {source.next() for source in sources} == {"one"}
        before, began = page.asked, time.monotonic()
        time.sleep(1)
        looks = (time.monotonic() - began) / (EVERY_S / 2)
        # Each of the twenty alone would have asked ten times.
        assert 0 < page.asked - before <= looks + 1
        page.said = "two"
        assert {source.next() for source in sources} == {"two"}


def test_no_more_listen_than_there_is_room_for_and_who_leaves_makes_room():
    page = _Page(most=2)
    with listening(page.app) as url:
        with _open(f"{url}/events"), _open(f"{url}/events"):
            refused = httpx.get(f"{url}/events", trust_env=False)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "60")
            assert refused.json()["error"]["code"] == "overloaded"
        _until(lambda: page.live.readers == 0)
        with _open(f"{url}/events") as source:
            assert source.next() == "one"


def test_a_page_that_is_not_there_has_no_events_and_takes_no_room():
    page = _Page(most=1)
    page.problem = NotFound("there is no flag 'x'", hint="flags: none")
    with listening(page.app) as url:
        for _ in range(3):
            assert httpx.get(f"{url}/events", trust_env=False).status_code == 404
    assert page.live.readers == 0


def test_when_the_page_cannot_be_made_its_connections_end_and_are_taken_up_again():
    page = _Page()
    with listening(page.app) as url:
        with _open(f"{url}/events") as source:
            assert source.next() == "one"
            page.problem = Unavailable("the database is busy", hint="try again")
            assert source.ends()
        page.problem = None
        with _open(f"{url}/events") as source:
            assert source.next() == "one"


def test_closing_ends_every_connection_and_takes_no_other():
    page = _Page()
    with listening(page.app) as url, _open(f"{url}/events") as one, _open(f"{url}/events") as other:
        page.live.close()
        assert one.ends()
        assert other.ends()
        assert httpx.get(f"{url}/events", trust_env=False).status_code == 503


def test_a_change_of_the_rollout_is_an_event_and_time_going_on_is_none(compared):
    app = create_app(Settings(db=compared.db.url), compared.db, clock=lambda: compared.now)
    with listening(app) as url, _open(f"{url}/rollouts/{compared.key}/events") as source:
        shown = httpx.get(f"{url}/rollouts/{compared.key}.json", trust_env=False).json()["version"]
        assert source.next() == shown
        told = []
        thread = threading.Thread(target=lambda: told.append(source.next()))
        thread.start()
        address = f"{url}/rollouts/{compared.key}.json"
        made = httpx.get(address, trust_env=False).json()["generated_at"]
        compared.passes(5)
        # Evidence is read anew ten times as late as it took.
        _until(lambda: httpx.get(address, trust_env=False).json()["generated_at"] != made)
        time.sleep(3)
        assert not told
        with compared.db.write() as conn:
            course.pause(conn, compared.key, author="bob", reason="lunch", now=compared.now)
        thread.join(PATIENCE_S)
        page = httpx.get(f"{url}/rollouts/{compared.key}.json", trust_env=False).json()
        # Evidence that takes long to read follows with an event of its own.
        assert told[0] != shown != page["version"]
        assert page["flag"]["phase"] == "paused"


def test_the_version_is_of_what_is_said_and_not_of_the_view(compared):
    app = create_app(Settings(db=compared.db.url), compared.db, clock=lambda: compared.now)
    with listening(app) as url:
        asked = [f"{url}/rollouts/{compared.key}.json{query}" for query in ("", "?q=a", "?arm=control&page=2")]
        assert len({httpx.get(one, trust_env=False).json()["version"] for one in asked}) == 1


def test_behind_tokens_events_need_what_the_page_needs(db):
    guarded = Guarded(db)
    who = {"author": "ann", "reason": "go", "now": guarded.now}
    with db.write() as conn:
        flags.create(conn, key="clb", feature="cross_layer_blocks", baseline_s=0, quiet_s=0, **who)
    with listening(guarded.app) as url:
        for scope, status in ((None, 401), (Scope.INGEST, 403)):
            sent = {"Authorization": f"Bearer {guarded.secrets[scope]}"} if scope else {}
            assert httpx.get(f"{url}/rollouts/clb/events", headers=sent, trust_env=False).status_code == status
        with _open(f"{url}/rollouts/clb/events", Authorization=f"Bearer {guarded.secrets[Scope.READ]}") as source:
            assert len(source.next()) == 32
        token = {"token": guarded.secrets[Scope.READ]}
        with httpx.Client(base_url=url, trust_env=False) as browser:
            browser.post("/login", data=token)
            with browser.stream("GET", "/rollouts/clb/events", timeout=PATIENCE_S) as answer:
                assert (answer.status_code, len(_Source(answer).next())) == (200, 32)


def test_a_collector_that_is_told_to_stop_ends_open_pages_at_once_and_takes_them_up_when_it_is_back(tmp_path):
    service = Service(tmp_path / "kvflags.db", tmp_path / "log", port=free_port()).start(timeout=60)
    address = f"{service.url}/rollouts/clb/events"
    body = {"key": "clb", "feature": "cross_layer_blocks", "author": "ann", "reason": "go"}
    with service.client() as client:
        client.post("flags", body=body)
    with _open(address) as source:
        before = source.next()
        began = time.monotonic()
        service.stop()
        # A drain takes five seconds where something holds it up.
        assert time.monotonic() - began < 5
        assert source.ends()
    service.start(timeout=60)
    try:
        with _open(address) as source:
            assert source.next() == before
    finally:
        service.stop()
