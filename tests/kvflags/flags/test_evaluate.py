# SPDX-License-Identifier: Apache-2.0
"""The precedence: each line wins over all below it and loses to all above it."""

from dataclasses import replace

import pytest

from kvflags.flags import (
    Arm,
    Assignment,
    Comparison,
    Flag,
    Phase,
    Refusal,
    RuleClass,
    Ruling,
    Standing,
    Variant,
    evaluate,
)

FLAG = Flag(key="f", feature="x", salt_enrolment="e", salt_arm="a", phase=Phase.RUNNING)
TREATED = Assignment(
    deployment="d", arm="treatment", comparison="included", reason="assigned", bucket=7, backend="FLASH_ATTN"
)
REFUSAL = Refusal("one_head", RuleClass.INEFFECTIVE, "One head is slower")

# From the top of the precedence to the bottom: what makes the line decide, and what it then says.
LADDER = [
    ({"flag": {"kill_switch": True}}, "kill_switch"),
    ({"flag": {"phase": Phase.ABORTED}}, "phase_aborted"),
    ({"standing": {"opted": "out"}}, "opt_out"),
    ({"standing": {"safe_mode": True}}, "safe_mode"),
    ({"standing": {"refusals": (REFUSAL,)}}, "gate:one_head"),
    ({"standing": {"unobserved": "no decode engine yet"}}, "not_observed"),
    ({"standing": {"opted": "in"}}, "opt_in"),
    ({"standing": {"assignment": replace(TREATED, arm="control", reason="holdback")}}, "holdback"),
    ({"standing": {"assignment": TREATED}}, "assigned"),
    ({}, "default"),
]


def ruling(*steps):
    flag, standing = FLAG, Standing()
    for step in reversed(steps):  # of two steps that set the same thing, the upper one stands
        flag = replace(flag, **step.get("flag", {}))
        standing = replace(standing, **step.get("standing", {}))
    return evaluate(flag, standing)


@pytest.mark.parametrize("rung", range(len(LADDER)))
def test_a_line_wins_over_everything_below_it(rung):
    steps = [step for step, _ in LADDER[rung:]]
    assert ruling(*steps).reason == LADDER[rung][1]
    assert ruling(LADDER[rung][0]).reason == LADDER[rung][1]


def test_the_trace_is_every_line_asked_and_ends_with_the_winner():
    answer = ruling({"standing": {"refusals": (REFUSAL,)}})
    assert [(line.line, line.outcome, line.won) for line in answer.trace] == [
        ("kill switch", "not set", False),
        ("phase", "running", False),
        ("opt-out", "not opted out", False),
        ("safe mode", "not in safe mode", False),
        ("gate", "One head is slower", True),
    ]


def test_an_assignment_carries_variant_arm_and_bucket():
    assert ruling({"standing": {"assignment": TREATED}}) == Ruling(
        Variant.ON, "assigned", Arm.TREATMENT, Comparison.INCLUDED, 7
    )
    control = replace(TREATED, arm="control")
    assert ruling({"standing": {"assignment": control}}) == Ruling(
        Variant.OFF, "assigned", Arm.CONTROL, Comparison.INCLUDED, 7
    )


def test_changed_facts_are_off_and_named():
    answer = ruling({"standing": {"changed": ("vllm 0.32.0 -> 0.33.0",), "assignment": TREATED}})
    assert (answer.variant, answer.reason) == (Variant.OFF, "facts_changed")
    assert answer.trace[-1].outcome == "off: facts_changed (vllm 0.32.0 -> 0.33.0)"


def test_completed_is_on_without_an_arm_but_never_past_a_gate():
    done = {"flag": {"phase": Phase.COMPLETED}}
    assert ruling(done) == Ruling(Variant.ON, "completed")
    assert ruling(done, {"standing": {"refusals": (REFUSAL,)}}).variant == Variant.OFF
    assert ruling(done, {"standing": {"opted": "out"}}).reason == "opt_out"


def test_paused_keeps_what_was_assigned_and_adds_none():
    paused = {"flag": {"phase": Phase.PAUSED}}
    assert ruling(paused, {"standing": {"assignment": TREATED}}).variant == Variant.ON
    assert ruling(paused).reason == "default"
