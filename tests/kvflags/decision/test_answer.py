# SPDX-License-Identifier: Apache-2.0
"""What a collector may answer, and what is no answer."""

import pytest

from kvflags.decision.answer import Answer, as_running, decision_from, read
from kvflags.errors import Unavailable
from kvflags.flags import Decision


def test_a_decision_and_an_interval(decided) -> None:
    other = decided | {"feature": "of_a_later_release"}
    later = decided | {"field": "of a later release"}
    assert read({"decisions": [other, later], "heartbeat_s": 5}) == Answer(Decision.from_json(decided), 5.0)


def test_no_flag() -> None:
    assert read({"decisions": []}) == Answer(None, 30.0)


@pytest.mark.parametrize(("asked", "kept"), [(0, 0.1), (-5, 0.1), (0.5, 0.5), (1e9, 3600.0)])
def test_the_interval_is_kept_within_reason(asked, kept) -> None:
    assert read({"decisions": [], "heartbeat_s": asked}).heartbeat_s == kept


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"decisions": None},
        {"decisions": ["x"]},
        {"decisions": [{}]},
        {"decisions": {"feature": "x"}},
        {"decisions": [], "heartbeat_s": "30"},
        {"decisions": [], "heartbeat_s": True},
        {"decisions": [], "heartbeat_s": None},
    ],
)
def test_another_shape_is_no_answer(document) -> None:
    with pytest.raises(Unavailable, match="cannot be read"):
        read(document)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("variant", "maybe"),
        ("variant", None),
        ("variant", ["on"]),
        ("arm", "both"),
        ("comparison", 1),
        ("state", "open"),
        ("revision", "3"),
        ("epoch", None),
        ("epoch", True),
        ("bucket", 1.5),
        ("reason", None),
        ("flag", 7),
        ("signed", 7),
    ],
)
def test_a_decision_with_a_field_of_another_type_is_none(decided, field, value) -> None:
    with pytest.raises(ValueError, match=field):
        decision_from(decided | {field: value})


def test_a_decision_that_lacks_a_field_is_none(decided) -> None:
    with pytest.raises(ValueError, match="not a decision"):
        decision_from({name: value for name, value in decided.items() if name != "variant"})


def test_an_engine_that_runs_something_else_leaves_the_comparison_but_keeps_flag_and_epoch(decided) -> None:
    decision = Decision.from_json(decided | {"signed": "a.b"})
    changed = {"variant": "off", "arm": None, "comparison": "excluded", "reason": "why", "signed": None}
    assert as_running(decision, "off", "why").to_json() == decided | changed
