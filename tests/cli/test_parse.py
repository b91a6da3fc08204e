# SPDX-License-Identifier: Apache-2.0
import pytest

from kvflags.errors import UsageError
from kvflags_cli.parse import duration, percentage


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7d", 604800), ("10m", 600), ("1h30m", 5400), ("45s", 45), ("0", 0), ("90", 90), ("0.5", 0.5), ("1.5h", 5400)],
)
def test_durations(text, seconds):
    assert duration(text, "--quiet") == seconds


@pytest.mark.parametrize("text", ["", "7 d", "d7", "1w", "-5m", "1h5", ".5h", "1.h", "٣", "10m!"])
def test_what_is_no_duration_says_what_is(text):
    with pytest.raises(UsageError) as raised:
        duration(text, "--quiet")
    assert raised.value.message == f"--quiet: not a duration: {text!r}"
    assert raised.value.hint == "such as 7d, 10m, 1h30m, or a number of seconds"


@pytest.mark.parametrize(
    ("text", "percent"), [("25%", 25.0), ("25", 25.0), ("0%", 0.0), ("100%", 100.0), ("12.5%", 12.5), ("0.001%", 0.001)]
)
def test_percentages(text, percent):
    assert percentage(text) == percent


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("101%", "a percentage lies between 0 and 100, not 101%"),
        ("-1%", "a percentage lies between 0 and 100, not -1%"),
        ("nan", "a percentage lies between 0 and 100, not nan"),
        ("inf%", "a percentage lies between 0 and 100, not inf%"),
        ("0.0001%", "a percentage has at most three decimals, not 0.0001%"),
        ("half", "not a percentage: 'half'"),
        ("%", "not a percentage: '%'"),
    ],
)
def test_what_is_no_percentage_says_why(text, message):
    with pytest.raises(UsageError) as raised:
        percentage(text)
    assert raised.value.message == message
