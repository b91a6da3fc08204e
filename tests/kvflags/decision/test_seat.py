# SPDX-License-Identifier: Apache-2.0
"""Who registers: one process of each engine, and it knows its role."""

import pytest

from kvflags.decision.seat import role_of, seat_of

SERVE = ["/usr/bin/vllm", "serve", "model"]


@pytest.mark.parametrize(
    ("shape", "argv", "seat"),
    [
        ({}, SERVE, "front_end"),
        ({}, ["script.py"], "front_end"),
        ({}, [], "front_end"),
        ({"count": 4, "rank": -1}, SERVE, "parent"),
        ({"count": 4, "rank": 0}, SERVE, "child"),
        ({"count": 4, "rank": 3}, SERVE, "child"),
        # A Rust front end: no API server of ours will ask.
        ({"count": 1, "rank": -1}, SERVE, "front_end"),
        ({"node": 1}, [*SERVE, "--headless"], "follower"),
        # Engine cores of their own: they must hear the pin.
        ({"node": 0}, [*SERVE, "--headless"], "front_end"),
        ({}, ["/usr/bin/vllm", "preload", "--model", "m"], "preload"),
        ({}, ["script.py", "serve", "preload"], "front_end"),
    ],
)
def test_seat(fake_config, shape, argv, seat) -> None:
    assert seat_of(fake_config(**shape), argv) == seat


@pytest.mark.parametrize(
    ("configured", "kv_role", "role"),
    [
        (None, "kv_producer", "prefill"),
        (None, "kv_consumer", "decode"),
        (None, "kv_both", "both"),
        ("decode", "kv_both", "decode"),
        ("prefill", "kv_producer", "prefill"),
        ("both", None, "both"),
    ],
)
def test_role(configured, kv_role, role) -> None:
    assert role_of(configured, kv_role) == (role, "")


def test_a_role_that_vllm_contradicts_is_a_problem() -> None:
    role, problem = role_of("decode", "kv_producer")
    assert role == "prefill"
    assert problem == (
        "KVFLAGS_ROLE: decode contradicts kv_role=kv_producer; hint: leave it unset unless kv_role=kv_both"
    )
