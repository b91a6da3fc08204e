# SPDX-License-Identifier: Apache-2.0
"""Times are UTC inside: what clocks on walls do twice a year moves nothing."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from kvflags_collector.times import SECOND, lasting, parsed, rfc3339

BERLIN = ZoneInfo("Europe/Berlin")


def test_the_hour_that_comes_twice_is_two_hours():
    first, second = (parsed(datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold)) for fold in (0, 1))
    assert second - first == 3600 * SECOND
    assert (rfc3339(first), rfc3339(second)) == ("2026-10-25T00:30:00.000000Z", "2026-10-25T01:30:00.000000Z")


def test_a_day_with_23_hours_has_23_hours():
    begin, end = (parsed(datetime(2026, 3, day, tzinfo=BERLIN)) for day in (29, 30))
    assert (end - begin, lasting(end - begin)) == (23 * 3600 * SECOND, "23 h")


@pytest.mark.parametrize("us", [0, 1, 1_800_000_000_000_001])
def test_what_is_shown_comes_back(us):
    assert parsed(datetime.fromisoformat(str(rfc3339(us)))) == us
