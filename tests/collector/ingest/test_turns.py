# SPDX-License-Identifier: Apache-2.0
"""Turns: as long as it takes while there is room, and no longer than patience while others wait."""

from __future__ import annotations

import asyncio
import time

import pytest

from kvflags_collector.ingest.turns import Turns


async def _stay(turns: Turns, seconds: float, limit_s: float = 60) -> str:
    try:
        async with turns.turn(limit_s):
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "sent away"
    return "done"


def test_nobody_is_sent_away_while_there_is_room():
    async def three() -> list[str]:
        turns = Turns(3, 0.0)
        return await asyncio.gather(*(_stay(turns, 0.05) for _ in range(3)))

    assert asyncio.run(three()) == ["done"] * 3


def test_its_own_limit_holds_without_others():
    assert asyncio.run(_stay(Turns(1, 0.0), 60, limit_s=0.01)) == "sent away"


def test_slow_ones_make_room_for_those_who_wait():
    async def crowd() -> tuple[list[str], float]:
        turns, began = Turns(2, 0.05), time.monotonic()
        slow = [asyncio.ensure_future(_stay(turns, 60)) for _ in range(6)]
        await asyncio.sleep(0)
        assert await _stay(turns, 0.0) == "done"
        took = time.monotonic() - began
        for one in slow:
            one.cancel()
        return [one.result() for one in slow if one.done() and not one.cancelled()], took

    away, took = asyncio.run(crowd())
    assert away == ["sent away"] * len(away)
    assert len(away) >= 4
    assert took < 30


def test_an_error_or_a_cancellation_inside_gives_the_place_back():
    async def errors() -> str:
        turns = Turns(1, 60)
        with pytest.raises(KeyError):
            async with turns.turn(60):
                raise KeyError
        task = asyncio.ensure_future(_stay(turns, 60))
        await asyncio.sleep(0.01)
        task.cancel()
        waiting = asyncio.ensure_future(_stay(turns, 60))
        await asyncio.sleep(0)
        waiting.cancel()
        return await _stay(turns, 0)

    assert asyncio.run(errors()) == "done"
