# SPDX-License-Identifier: Apache-2.0
"""Prefill and decode forced apart: every request fails visibly, nothing hangs or crashes, the generation is named."""

import pytest
from fleet import FLAG, eventually

from kvflags_cli.demo.traffic import prompts

pytestmark = pytest.mark.engine

FAILING = prompts("failing", 5, seed=6, longest=300)


def test_a_forced_decode_engine_is_an_alarm_error_spans_and_negative_feedback(fleet):
    pair = fleet.pair("mixed", "r1", decode_environ={"KVFLAGS_FORCE": "on"}).start().wait_ready()
    try:
        results = pair.send(FAILING, 8)
        assert {result.finish_reason for result in results.values()} == {"error"}
        assert max(result.seconds for result in results.values()) < 30
        assert pair.local("alone", [9] * 60, 4).finish_reason == "length"
        assert pair.prefill.alive
        assert pair.decode.alive

        (alarm,) = eventually(lambda: fleet.report()["alarms"], "the alarm")
        assert (alarm["kind"], alarm["deployment"], alarm["generation"]) == ("mixed_generation", pair.name, "r1")
        row = eventually(
            lambda: (r := fleet.row("mixed", "r1")) and r["failed"] == len(FAILING) and r, "the error spans"
        )
        assert row["errors"] == {"handshake_failed": len(FAILING)}
        assert row["comparison"] == "excluded"
        assert row["excluded_because"]
        feedback = fleet.report()["feedback"]
        assert (feedback["positive"], feedback["negative"]) == (0, 1)
        assert feedback["items"][0]["deployment"] == pair.name
        # It is outside the comparison, so it must not spoil the verdict on those inside.
        assert fleet.report()["verdict"]["state"] == "waiting"
        # It neither made nor changed the pin.
        assert fleet.get("flags", FLAG, "explain", deployment=pair.name)["pin"]["variant"] == "off"
    finally:
        pair.stop()
