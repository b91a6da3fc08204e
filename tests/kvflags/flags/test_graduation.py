# SPDX-License-Identifier: Apache-2.0
"""Criteria as a small language, judged by numbers; and when a day is over."""

from datetime import UTC, datetime

import pytest

from kvflags.flags import criterion_problem, expired, graded

FIGURES = {"treated": 8, "control": 12, "days": 13.96, "days_at_100": 0.0, "alarms": 1, "unheard": 1}


@pytest.mark.parametrize(
    "text", ["verdict = ready", "verdict=ready in H100, FLASH_ATTN", " treated >= 8", "alarms = 0"]
)
def test_what_a_machine_can_judge(text):
    assert criterion_problem(text) == ""


@pytest.mark.parametrize(
    "text",
    ["", "no regression", "treated > 8", "treated >= -1", "errors <= 3", "verdict = hold", "treated >= 8 and more"],
)
def test_what_it_cannot(text):
    assert criterion_problem(text).startswith(
        f"{text!r} is no criterion: 'verdict = ready', or one of treated, control"
    )


@pytest.mark.parametrize(
    ("text", "met", "says"),
    [
        ("treated >= 8", True, "treated deployments that live with the feature in effect: 8"),
        ("treated >= 9", False, "treated deployments that live with the feature in effect: 8"),
        ("control <= 11", False, "control deployments that are compared: 12"),
        ("alarms = 0", False, "alarms that stand: 1"),
        ("alarms = 1", True, "alarms that stand: 1"),
        # Rounded up it would read as enough, and be called too little.
        ("days >= 14", False, "days since the first deployment was treated: 13.9"),
        ("days >= 13.9", True, "days since the first deployment was treated: 13.9"),
        ("days_at_100 >= 14", False, "days for which the target has been 100 %: 0"),
        ("no regression", None, "a person has to judge it"),
        ("unheard >= 1", None, "a person has to judge it"),
    ],
)
def test_by_numbers(text, met, says):
    assert [one.to_json() for one in graded([text], FIGURES, ())] == [{"says": text, "met": met, "detail": says}]


def test_a_figure_that_is_not_known_is_no_zero():
    found = graded(["alarms = 0", "treated >= 1"], {"treated": None}, ())
    assert [(one.met, one.detail) for one in found] == [
        (None, "alarms that stand: not known yet"),
        (None, "treated deployments that live with the feature in effect: not known yet"),
    ]


@pytest.mark.parametrize(
    ("text", "scope", "met", "says"),
    [
        ("verdict = ready", ["a"], True, "the verdict is ready for a"),
        ("verdict = ready", [], False, "the verdict is not ready"),
        ("verdict = ready", None, None, "the verdict was not asked for here; the report has it"),
        ("verdict = ready in a", ["b", "a"], True, "the verdict is ready for a, b"),
        ("verdict = ready in a", ["b"], False, "the verdict is ready for b"),
    ],
)
def test_by_the_verdict(text, scope, met, says):
    assert [(one.met, one.detail) for one in graded([text], FIGURES, scope)] == [(met, says)]


@pytest.mark.parametrize(
    ("at", "over"),
    [((2027, 2, 28), False), ((2027, 3, 1), False), ((2027, 3, 1, 23, 59, 59), False), ((2027, 3, 2), True)],
)
def test_a_flag_stands_until_its_day_is_over_in_utc(at, over):
    now = round(datetime(*at, tzinfo=UTC).timestamp() * 1e6)
    assert expired("2027-03-01", now) is over
    assert not expired(None, now)
