# SPDX-License-Identifier: Apache-2.0
"""No bundle holds a word of the fleet: names, ids, addresses and comments are drawn at random, and looked for in it."""

from __future__ import annotations

import json
from contextlib import closing

import numpy as np
from bundles import signed
from databases import opened
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from kvflags.signatures import canonical, new_key
from kvflags_collector.feedback import given as feedback
from kvflags_collector.hub.aggregate import Known, aggregate
from kvflags_collector.hub.gather import gather
from kvflags_collector.hub.schema import Signed
from kvflags_collector.store.frozen_tables import frozen_events
from kvflags_collector.store.metadata import metadata
from kvflags_collector.verdict.compare import Compared, Estimate, Standing, Stratum
from kvflags_collector.verdict.decide import Verdict, VerdictState
from kvflags_collector.verdict.effect import Effect, Interval
from kvflags_collector.verdict.outcomes import LIMITS, Outcome
from kvflags_collector.verdict.placebo import DeploymentVerdict

# What anybody may know: the schema with all its lists.
_PUBLIC = json.dumps(Signed.model_json_schema()).casefold()


def _is_told_apart(word: str) -> bool:
    """Four characters or more, none of the public words or a part of one, and nothing that hex or a number could be."""
    plain = word.casefold()
    return plain not in _PUBLIC and any(letter not in "0123456789abcdef.-e" for letter in plain)


secrets = st.text(st.characters(categories=["L", "N"]), min_size=5, max_size=20).filter(_is_told_apart)


def _found(document: object, words: list[str]) -> list[str]:
    """Which of the words are in it, however they are written."""
    texts = [canonical(document).decode().casefold(), json.dumps(document, ensure_ascii=False).casefold()]
    forms = {word: (word.casefold(), json.dumps(word)[1:-1].casefold()) for word in words}
    return [word for word, spelt in forms.items() if any(one in text for one in spelt for text in texts)]


# What engines say of themselves, with the name of whoever runs it in it.
strata = st.builds(
    lambda word, form: form.format(word),
    secrets,
    st.sampled_from(
        [
            "{}",
            "FLASH_ATTN, NVIDIA H100 {}, gqa, vLLM 0.32",
            "FLASH_ATTN, {}, gqa",
            "FLASH_ATTN, H100, {}, 4 heads, block 16",
            "FLASH_ATTN, H100, vLLM {}, block 16",
            "FLASH_ATTN, H100, tcp+{}",
            "FLASH_ATTN, H100 and TRITON_ATTN, {}",
        ]
    ).map(str),
)
_EFFECT = Estimate(
    LIMITS[Outcome.TIME_TO_FIRST_TOKEN],
    Effect(
        delta=-0.2,
        se=0.03,
        nu=12.0,
        tau=5.0,
        treated=9,
        control=9,
        control_variance=0.01,
        treated_variance=0.01,
        variance=0.01,
        each=np.full(9, -0.2),
        rows=np.arange(9),
    ),
    Interval(-0.3, -0.1),
    Standing.MET,
    0.05,
)


@settings(deadline=None, max_examples=100)
@given(names=st.lists(strata, max_size=6, unique=True), architectures=st.lists(secrets, max_size=12), reason=secrets)
def test_whatever_engines_say_of_themselves(names, architectures, reason):
    parts = [Stratum(name=name, treated=9, control=9, outcomes={_EFFECT.outcome: _EFFECT}) for name in names]
    compared = Compared(treated=9, control=9, unmatched=0, outcomes={_EFFECT.outcome: _EFFECT}, strata=parts)
    made = aggregate(
        Known(
            fleet="0" * 16,
            feature="cross_layer_blocks",
            day="2027-01-15",
            verdict=Verdict(VerdictState.ON_TRACK, reason, (reason,), reason, returned=(reason,), compared=compared),
            effective_share=1.0,
            architectures=architectures,
            measured=[DeploymentVerdict.POSITIVE],
            given=["positive"],
            tags=["latency"],
        )
    )
    assert len(made["effects"]) == 1
    assert _found(made, [*names, *architectures, reason]) == []
    words = {part for name in names for part in name.replace("NVIDIA H100 ", "").split(", ")}
    assert _found(made, [word for word in words if _is_told_apart(word) and len(word) > 4]) == []


def _said(conn, scene, deployment, words):
    said = {"sign": "negative", "tags": ["latency"], "comment": words["comment"]}
    for _ in range(6):
        feedback.give(conn, scene.key, deployment, said, author=words["author"], now=scene.now)


@settings(deadline=None, max_examples=3)
@given(
    words=st.fixed_dictionaries(
        dict.fromkeys(
            ("cluster", "app", "generation", "later", "gpu", "architecture", "comment", "author", "flag"), secrets
        )
    ),
    host=st.ip_addresses().map(str),
)
def test_whatever_a_fleet_is_called(databases, scene_on, words, host):
    url = databases.new()
    with closing(opened(url)) as db:
        scene = scene_on(db, words["flag"])
        names = [f"{words['cluster']}/{host}/{words['app']}{number}" for number in range(10)]
        facts = {"gpu": f"NVIDIA H100 {words['gpu']}", "architecture": words["architecture"]}
        for name in names:
            scene.starts(name, words["generation"], facts=facts)
        scene.passes(60)
        scene.aim(count=5)
        arms = {name: scene.starts(name, words["later"], facts=facts)["arm"] for name in names}
        _freeze(scene, arms, words["later"])
        with db.write() as conn:
            _said(conn, scene, names[0], words)
        with db.read() as conn:
            made = signed(new_key(), gather(conn, scene.key, "public key", scene.now))
            stored = " ".join(
                str(tuple(row)) for table in metadata.sorted_tables for row in conn.execute(select(table))
            )
    databases.drop(url)
    hidden = [*words.values(), *names, host, "ann", "try it"]
    # They were all there to be told, and something is told.
    assert [word for word in words.values() if word not in stored] == []
    assert (made["bundle"]["deployments"], made["bundle"]["given"]["negative"]) == (10, 6)
    assert len(made["bundle"]["effects"]) > 0
    assert _found(made["bundle"], hidden) == []


def _freeze(scene, arms, generation):
    """An event of each deployment, as the judge would write it down."""
    rows = [
        {
            "flag": scene.key,
            "deployment": name,
            "event_us": scene.now,
            "horizon": 3,
            "generation": generation,
            "epoch": 1,
            "treated": arm == "treatment",
            "cohort": "one",
            "stratum": f"FLASH_ATTN, {generation}",
            "left_out": None,
            "measured": _measured((-0.2 if arm == "treatment" else 0.0) + number / 1000),
            "recorded_us": scene.now,
        }
        for number, (name, arm) in enumerate(arms.items())
    ]
    with scene.db.write() as conn:
        conn.execute(frozen_events.insert(), rows)


def _measured(change):
    return {
        "values": {"time_to_first_token": change},
        "invariants": {},
        "days": [[None], [None]],
        "failed": [],
        "transfers": [],
    }
