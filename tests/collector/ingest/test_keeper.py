# SPDX-License-Identifier: Apache-2.0
"""What comes seldom is committed before it is answered, whatever fails beside it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, func, select

from kvflags.errors import Unavailable
from kvflags_collector.ingest.keeper import Keeper
from kvflags_collector.ingest.limits import Refused
from kvflags_collector.store.outcome_tables import events


class Item:
    """Something to keep: an event of its own, and then whatever `then` does."""

    size = 1

    def __init__(self, number: int, then: Callable[[], None] = lambda: None) -> None:
        self.rejected: Counter[str] = Counter()
        self._number, self._then = number, then

    def store(self, conn: Connection) -> Counter[str]:
        row = {"time_us": 1, "fingerprint": bytes([self._number]) * 16, "name": "n", "attributes": {}, "received_us": 1}
        conn.execute(events.insert(), row)
        self._then()
        return Counter({"late": 1})


class Nothing(Item):
    """What holds nothing to keep."""

    def __init__(self) -> None:
        super().__init__(0)

    def __bool__(self) -> bool:
        return False


def _count(db) -> int:
    with db.read() as conn:
        return conn.scalar(select(func.count()).select_from(events)) or 0


async def _send(keeper: Keeper, item: Item) -> None:
    assert await keeper.submit(lambda: item) is item


def _submit(keeper: Keeper, *items: Item) -> list[BaseException | None]:
    async def together() -> list[BaseException | None]:
        return await asyncio.gather(*(_send(keeper, item) for item in items), return_exceptions=True)

    return asyncio.run(together())


def _fail() -> None:
    raise ValueError("bad luck")


def test_items_are_committed_and_told_what_was_refused(db, keeper):
    items = [Item(number) for number in range(200)]
    assert _submit(keeper, *items) == [None] * 200
    assert (_count(db), {item.rejected["late"] for item in items}) == (200, {1})


def test_one_that_fails_costs_itself_only(db, keeper, caplog):
    good, bad = [Item(number) for number in range(5)], Item(9, _fail)
    answers = _submit(keeper, *good[:2], bad, *good[2:])
    assert [type(answer) for answer in answers] == [type(None)] * 2 + [Refused] + [type(None)] * 3
    assert (_count(db), bad.rejected, "bad luck" in caplog.text) == (5, Counter(), True)


def test_one_that_cannot_be_made_is_told_why_and_keeps_nobody_up(db, keeper):
    async def together() -> list[Item | BaseException | None]:
        made = [keeper.submit(_fail), *(_send(keeper, Item(number)) for number in range(3)), keeper.submit(Nothing)]
        return await asyncio.gather(*made, return_exceptions=True)

    [bad, *good, nothing] = asyncio.run(together())
    assert (repr(bad), good, bool(nothing)) == ("ValueError('bad luck')", [None] * 3, False)
    assert (_count(db), keeper.alive) == (3, True)


def test_a_database_that_cannot_answer_is_asked_once_for_all(db, keeper, caplog):
    asked = []

    def busy() -> None:
        asked.append(1)
        # Until the others have queued up behind the first.
        ready.wait(10)
        raise Unavailable("the database is busy")

    ready = threading.Event()

    async def together() -> list[BaseException | None]:
        sent = [asyncio.ensure_future(_send(keeper, Item(number, busy))) for number in range(10)]
        await asyncio.sleep(0)
        ready.set()
        return await asyncio.gather(*sent, return_exceptions=True)

    answers = asyncio.run(together())
    assert {str(answer) for answer in answers} == {"the outcomes or events could not be stored: try again"}
    assert (len(asked) <= 2, _count(db)) == (True, 0)
    # However many groups fail: a line, and no traceback.
    [record] = caplog.records
    assert record.getMessage() == "could not store outcomes or events: the database is busy"
    assert (record.levelname, record.exc_info) == ("ERROR", None)


def test_a_closed_keeper_asks_clients_to_come_back(db, keeper):
    keeper.close()
    assert not keeper.alive
    [answer] = _submit(keeper, Item(1))
    assert isinstance(answer, Refused)
    assert (answer.status, _count(db)) == (503, 0)


def test_an_idle_keeper_closes_even_if_never_started(db):
    Keeper(db).close()


@pytest.mark.parametrize("number", [1, 250])
def test_closing_stores_what_is_queued(db, keeper, number):
    async def submit_and_close() -> list[BaseException | None]:
        sent = [asyncio.ensure_future(_send(keeper, Item(at))) for at in range(number)]
        await asyncio.sleep(0)
        closing = threading.Thread(target=keeper.close)
        closing.start()
        answers = await asyncio.gather(*sent, return_exceptions=True)
        await asyncio.to_thread(closing.join)
        return answers

    answers = asyncio.run(submit_and_close())
    assert set(answers) == {None}
    assert _count(db) == len(answers)
