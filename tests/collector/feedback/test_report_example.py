# SPDX-License-Identifier: Apache-2.0
"""The example in the documentation is what a report of this simulated fleet says, to the letter.

`KVFLAGS_WRITE_EXAMPLE=1 pytest tests/collector/feedback/test_report_example.py` writes it.
"""

from __future__ import annotations

import os
from pathlib import Path

from stored_fleet import DAY_US, Fleet

from kvflags.telemetry.instruments import InstrumentName as Name
from kvflags_cli.render.written.markdown import markdown
from kvflags_collector.feedback import given

EXAMPLE = Path(__file__).parents[3] / "docs" / "report-example.md"
_HEAD = """<!-- Written by tests/collector/feedback/test_report_example.py; a simulated fleet. -->

> This fleet is simulated: 40 deployments on two GPUs, 20 of them treated. Its stored hours went through the
> collector's own judge; this is what `kvflags report cross-layer-blocks --format markdown` prints of them.

"""


def test_the_example_is_what_the_report_says(scene):
    fleet = Fleet(scene, 40, facts_of=lambda name: {"gpu": "B200" if int(name[-2:]) % 2 else "H100"})
    slower = {Name.TTFT: -0.12}
    fleet.store(of=lambda name: slower if int(name[-2:]) % 2 else {Name.TTFT: -0.3})
    fleet.judge_at(4.2)
    fleet.merge_days()
    with scene.db.write() as conn:
        said = {"sign": "negative", "tags": ["crash"], "comment": "restart hung once, not seen again"}
        treated = next(name for name in fleet.names if fleet.treated(name))
        given.give(conn, scene.key, treated, said, author="ann", now=scene.now)
    scene.now = fleet.event_us + 10 * DAY_US
    text = _HEAD + markdown(fleet.report())
    if os.environ.get("KVFLAGS_WRITE_EXAMPLE"):
        EXAMPLE.write_text(text)
    assert EXAMPLE.read_text() == text
