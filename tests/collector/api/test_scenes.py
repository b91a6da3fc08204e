# SPDX-License-Identifier: Apache-2.0
"""Scenes of an operator's nights, each with the real application: what engines are told, what the status says."""

import itertools

import pytest

WHO = {"author": "ann", "reason": "because"}
A = "c/ns/a"


class Scene:
    """One deployment's engines over HTTP, each of which runs what it was told first."""

    def __init__(self, api):
        self.api, self.told, self.count = api, {}, itertools.count(1)

    def join(self, generation, role, **more):
        name = f"e{next(self.count)}"
        status, answer = self.api.register(name, generation=generation, role=role, **more)
        assert status == 200
        self.told[name] = answer["decisions"][0]
        self.beat(name)
        return name

    def beat(self, *names):
        for name in names or tuple(self.told):
            on = self.told[name]["variant"] == "on"
            layout = {"resolved": "BHLNC" if on else "LBHNC", "effective": on}
            assert self.api.beat(name, layout=layout)[0] == 200

    def passes(self, seconds, *alive):
        for _ in range(seconds // 20):
            self.api.now += 20_000_000
            self.beat(*alive)

    def variants(self, *names):
        return {self.told[name]["variant"] for name in names}

    def decisions(self):
        with self.api.db.read() as conn:
            return conn.exec_driver_sql("SELECT count(*) FROM pins").scalar()


@pytest.fixture
def scene(api):
    """Observed off in g1, aimed at everybody."""
    api.create()
    scene = Scene(api)
    for role in ("prefill", "decode"):
        scene.join("g1", role)
    api.aim(percent=100)
    return scene


def deployment(api):
    return api("GET", "/api/v1/flags/clb/status")[1]["deployments"][0]


def test_a_kill_switch_then_a_decode_pool_scales_from_two_to_six(scene, api):
    pool = [scene.join("g2", role) for role in ("prefill", "prefill", "decode", "decode")]
    api("PUT", "/api/v1/flags/clb/kill-switch", {"on": True, **WHO})
    pool += [scene.join("g2", "decode") for _ in range(4)]
    assert scene.variants(*pool) == {"on"}
    generation = deployment(api)["generations"][1]
    assert (generation["state"], generation["to_replace"]) == ("condemned", 8)


def test_b_pod_template_hashes_as_generations_never_pair_different_layouts(api):
    """Prefill and decode each with a hash of its own: no generation is whole, so none is observed and none treated."""
    api.create()
    scene = Scene(api)
    engines = [scene.join("prefill-7f9c", "prefill"), scene.join("decode-5d2b", "decode")]
    for percent in (1, 50, 100):
        api.aim(percent=percent)
        engines += [scene.join(f"prefill-{percent}", "prefill"), scene.join(f"decode-{percent}", "decode")]
        scene.passes(40)
    assert scene.variants(*engines) == {"off"}
    [item] = api("GET", "/api/v1/deployments")[1]["items"]
    assert (
        "no decode engine" in item["flags"][0]["waiting_for"] or "no prefill engine" in item["flags"][0]["waiting_for"]
    )


def test_c_the_database_is_away_for_three_leases_and_one_new_engine_comes_at_its_return(scene, api):
    scene.join("g2", "prefill")
    scene.join("g2", "decode")
    api("POST", "/api/v1/flags/clb/abort", WHO)
    before = scene.decisions()
    api.now += 3 * 90_000_000
    new = scene.join("g2", "decode")
    assert scene.variants(new) == {"on"}
    assert scene.decisions() == before


def test_d_one_decode_engine_dies_again_and_again(scene, api):
    peers = [scene.join("g2", "prefill"), scene.join("g2", "decode")]
    lives = []
    for deaths in range(5):
        lives.append(scene.join("g2", "decode", deaths=deaths))
        scene.passes(20, *peers)
    assert scene.variants(*peers, *lives) == {"on"}
    generation = deployment(api)["generations"][1]
    assert (generation["state"], generation["condemned_reason"]) == ("condemned", "safe_mode")


def test_e_two_hundred_joins_and_leaves_in_a_day_decide_nothing(scene, api):
    peers = [scene.join("g2", "prefill"), scene.join("g2", "decode")]
    before = scene.decisions()
    joined = []
    for index in range(200):
        joined.append(scene.join("g2", ("prefill", "decode")[index % 2]))
        scene.passes(20, *peers)
    assert scene.variants(*peers, *joined) == {"on"}
    assert scene.decisions() == before


def test_f_a_new_vllm_in_the_release_is_off_and_observed_again(scene, api):
    facts = {
        "vllm": "0.33.0",
        "model_class": "gqa",
        "kv_heads_per_rank": 4,
        "connector": "NixlConnector",
        "isolation": "recreate",
    }
    new = [scene.join("g2", role, facts=facts) for role in ("prefill", "decode")]
    assert [(scene.told[name]["variant"], scene.told[name]["reason"]) for name in new] == [("off", "facts_changed")] * 2
    [item] = api("GET", "/api/v1/deployments")[1]["items"]
    assert item["observed_generation"] == "g2"
    assert scene.variants(scene.join("g3", "prefill", facts=facts)) == {"on"}
