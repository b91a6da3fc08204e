# SPDX-License-Identifier: Apache-2.0
"""Values travel as JSON and come back the same; what a newer peer adds is ignored."""

import json

from kvflags.flags import BUCKETS, Facts, Flag, Phase, Target

FLAG = Flag(
    key="cross-layer-blocks",
    feature="cross_layer_blocks",
    salt_enrolment="e",
    salt_arm="a",
    revision=3,
    phase=Phase.RUNNING,
    target=Target(share=BUCKETS // 4),
    overrides={"FLASHINFER": Target(count=2)},
)


def test_a_flag_comes_back_the_same():
    assert Flag.from_json(json.loads(json.dumps(FLAG.to_json()))) == FLAG


def test_unknown_fields_are_ignored():
    assert Flag.from_json(FLAG.to_json() | {"colour": "blue"}) == FLAG
    assert Facts.from_json({"vllm": "0.32.0", "new": 1}) == Facts(vllm="0.32.0")


def test_targets_read_as_an_operator_would_say_them():
    assert [str(FLAG.target), str(FLAG.overrides["FLASHINFER"]), str(Target(share=500))] == [
        "25%",
        "2 deployments",
        "0.5%",
    ]


def test_later_facts_add_and_never_erase():
    facts = Facts(vllm="0.32.0", block_size=16)
    assert facts.updated({"backend": "FLASH_ATTN", "block_size": None}) == Facts(
        vllm="0.32.0", block_size=16, backend="FLASH_ATTN"
    )
