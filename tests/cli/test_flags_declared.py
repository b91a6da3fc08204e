# SPDX-License-Identifier: Apache-2.0
"""Criteria and an expiry from the command line: declared, shown, past their day, extended."""

import pytest

KEY = "cross-layer-blocks"
WHY = ("--reason", "because", "--author", "ada")
DECLARED = ("--criterion", "treated >= 1", "--criterion", "verdict = ready", "--expires", "2026-12-02")
_DAY_US = 86_400 * 10**6


@pytest.fixture
def late(kvflags, fleet):
    """A flag whose day is over."""
    create = ("flags", "create", KEY, "--feature", "cross_layer_blocks", "--baseline", "0", "--quiet", "0")
    assert kvflags(*create, *DECLARED, *WHY).code == 0
    fleet.now_us += 2 * _DAY_US
    return fleet


def test_a_criterion_that_no_machine_can_judge_is_a_usage_error(kvflags, fleet):
    wrong = kvflags("flags", "create", KEY, "--feature", "cross_layer_blocks", "--criterion", "no regression")
    assert wrong.code == 2
    assert wrong.err == (
        "error: 'no regression' is no criterion: 'verdict = ready', or one of treated, control, days, days_at_100, "
        "alarms with >=, <= or = and a number\n\n"
        "hint: such as 'verdict = ready', 'treated >= 8' or 'days_at_100 >= 14'\n"
    )


def test_the_report_names_them_too(kvflags, late):
    told = kvflags("report", KEY).out
    assert "expires      2026-12-02: EXPIRED, extend or archive it" in told
    assert "treated deployments that live with the feature in effect: 0" in told


@pytest.mark.parametrize("command", [("rollout", "status"), ("rollout", "get")])
def test_wherever_it_stands_each_criterion_is_named_and_that_it_expired(kvflags, late, command):
    told = kvflags(*command, KEY).out
    assert "criteria, 0 of 2" in told
    assert "✗ not met  treated >= 1  (treated deployments that live with the feature in effect: 0)" in told
    assert "2026-12-02: EXPIRED, extend or archive it" in told


def test_lists_and_doctor_name_it(kvflags, late):
    assert kvflags("flags", "list").out.splitlines()[1].endswith("2026-12-02: EXPIRED, extend or archive it")
    assert "expires      2026-12-02: EXPIRED" in kvflags("flags", "show", KEY).out
    doctor = kvflags("doctor")
    assert doctor.code == 1
    assert f"expiry: {KEY} expired on 2026-12-02" in doctor.out
    assert f"kvflags flags extend {KEY} --expires DAY" in doctor.out


def test_it_is_extended(kvflags, late):
    extended = kvflags("flags", "extend", KEY, "--expires", "2027-06-01", *WHY)
    assert extended.code == 0
    assert "EXPIRED" not in extended.out + kvflags("rollout", "status", KEY).out
    assert "no flag is past its day" in kvflags("doctor").out
    assert "expires" not in kvflags("flags", "extend", KEY, "--never", *WHY).out


@pytest.mark.parametrize("given", [(), ("--never", "--expires", "2027-06-01"), ("--expires", "2026-12-01")])
def test_a_wrong_day_is_a_usage_error(kvflags, late, given):
    assert kvflags("flags", "extend", KEY, *given, *WHY).code == 2
