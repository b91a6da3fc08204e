# SPDX-License-Identifier: Apache-2.0
"""The verdict: what spoils a comparison before what it lacks, in words, and never a good word that was not computed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvflags_collector.verdict.decide import Verdict, VerdictState, verdict
from kvflags_collector.verdict.evidence import Inputs
from kvflags_collector.verdict.treatment import Treatment


def _one(number: int, *, treated: bool = True, effective: bool | None = True, **more: bool | str) -> Treatment:
    return Treatment(deployment=f"d{number}", generation="r2", treated=treated, effective=effective, **more)


def _fleet(treated: int = 8, control: int = 8, ineffective: int = 0) -> list[Treatment]:
    arm = [_one(n, effective=n >= ineffective, layout="asked for BHLNC") for n in range(treated)]
    return arm + [_one(100 + n, treated=False, effective=False) for n in range(control)]


def test_a_run_this_short_waits_and_says_what_for():
    assert verdict(Inputs(key="f", running=True, deployments=_fleet(1, 1), days=0.02)) == Verdict(
        VerdictState.WAITING,
        "too_few_deployments",
        (
            "1 treated deployment in the comparison; 8 are needed.",
            "1 control deployment in the comparison; 8 are needed.",
            "0.0 days with 25% or more treated; 7 are needed.",
            "No outcomes were received (time to first token, inter-token latency): transfers alone decide nothing.",
        ),
        "Raise the percentage, or enrol more deployments.",
    )


def test_a_flag_that_does_not_run_waits_for_being_started():
    found = verdict(Inputs(key="f", running=False))
    assert (found.state, found.reason) == (VerdictState.WAITING, "not_running")
    assert (found.why[0], found.next) == (
        "The flag is not running.",
        "Start it: kvflags rollout set f 25% --reason TEXT",
    )


def test_enough_of_everything_but_outcomes_is_no_outcomes():
    found = verdict(Inputs(key="f", running=True, deployments=_fleet(), days=7))
    assert (found.state, found.reason, len(found.why)) == (VerdictState.WAITING, "no_outcomes", 1)


def test_with_outcomes_too_it_waits_for_events():
    found = verdict(Inputs(key="f", running=True, deployments=_fleet(), days=7, outcomes=True))
    assert (found.state, found.reason) == (VerdictState.WAITING, "too_few_events")
    assert found.why == (
        "0 treated events can be compared so far; 8 are needed.",
        "0 control events can be compared so far; 8 are needed.",
    )


def test_a_treatment_that_did_not_take_hold_is_invalid_and_says_why():
    odd = _one(1, effective=False, layout="asked for BHLNC, vLLM settled on LBHNC, 8 regions for 8 layers")
    assert verdict(Inputs(key="f", running=True, deployments=[odd, *_fleet(1, 2)])) == Verdict(
        VerdictState.INVALID,
        "not_effective",
        (
            "The layout took hold in 1 of 2 treated deployments (50%); 90% are needed.",
            "d1 r2: asked for BHLNC, vLLM settled on LBHNC, 8 regions for 8 layers.",
        ),
        "Find out why the layout did not take hold (kvflags engines list), then replace those deployments.",
    )


def test_ninety_percent_effective_is_enough_and_less_is_not():
    assert (
        verdict(Inputs(key="f", running=True, deployments=_fleet(10, 8, ineffective=1))).state == VerdictState.WAITING
    )
    assert (
        verdict(Inputs(key="f", running=True, deployments=_fleet(10, 8, ineffective=2))).state == VerdictState.INVALID
    )


def test_what_is_not_known_counts_on_neither_side():
    unknown = Inputs(key="f", running=True, deployments=[_one(1, effective=None)])
    assert (unknown.effective_share, verdict(unknown).state) == (None, VerdictState.WAITING)


def test_a_mixed_generation_in_the_comparison_is_invalid_before_anything_else():
    found = verdict(
        Inputs(key="f", running=True, deployments=[_one(1, treated=False, mixed=True), _one(2, effective=False)])
    )
    assert (found.state, found.reason, found.next) == (
        VerdictState.INVALID,
        "mixed_generation",
        "Replace the prefill and decode engines of d1 together.",
    )
    assert found.why[0] == "d1 r2 is mixed: engines that may be paired held different layouts."


def test_disabled_telemetry_in_the_comparison_is_invalid():
    found = verdict(Inputs(key="f", running=True, deployments=[_one(1, treated=False, silent=True)]))
    assert (found.state, found.reason) == (VerdictState.INVALID, "telemetry_disabled")


_ANY = st.builds(
    Inputs,
    key=st.just("f"),
    running=st.booleans(),
    days=st.floats(0, 100),
    outcomes=st.booleans(),
    deployments=st.lists(
        st.builds(
            Treatment,
            deployment=st.sampled_from("abcdefgh"),
            generation=st.just("r"),
            treated=st.booleans(),
            effective=st.sampled_from([True, False, None]),
            mixed=st.booleans(),
            silent=st.booleans(),
        ),
        max_size=30,
    ),
)


@given(_ANY)
def test_nothing_but_waiting_and_invalid_is_ever_said_and_always_with_reasons(inputs):
    found = verdict(inputs)
    assert found.state in {VerdictState.WAITING, VerdictState.INVALID}
    assert found.reason
    assert found.next
    assert found.why
    spoiled = any(one.mixed or one.silent for one in inputs.deployments)
    assert not spoiled or found.state == VerdictState.INVALID
