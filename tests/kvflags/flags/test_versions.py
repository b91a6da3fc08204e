# SPDX-License-Identifier: Apache-2.0
"""Ranges of releases: numbers and not letters are compared, and what cannot be read is outside."""

import pytest

from kvflags.flags import in_range, range_problem


@pytest.mark.parametrize(
    ("release", "text", "inside"),
    [
        ("0.32.0", "", True),
        (None, "", True),
        (None, ">=0.30", False),
        ("nightly", ">=0.30", False),
        ("0.30.0", ">=0.30,<0.33", True),
        ("0.33", ">=0.30, <0.33", False),
        ("0.9.2", ">=0.30", False),
        ("0.32.1.post2", "==0.32.1", True),
        ("0.32.1", ">0.32.1", False),
        ("0.32.1", "<=0.32.1", True),
    ],
)
def test_a_release_in_a_range(release, text, inside):
    assert in_range(release, text) is inside


@pytest.mark.parametrize(("text", "problem"), [("", False), (">=0.30,<0.33", False), ("0.30", True), (">=x", True)])
def test_a_range_is_checked_before_it_is_stored(text, problem):
    assert bool(range_problem(text)) is problem
