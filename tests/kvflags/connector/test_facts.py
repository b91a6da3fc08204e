# SPDX-License-Identifier: Apache-2.0
"""What is read from a configuration and from a worker. (From vLLM's own configuration: test_vllm and tests/engine.)"""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from kvflags.connector.facts import static_facts, worker_facts
from kvflags.flags import Facts
from kvflags.settings import Settings


@pytest.fixture(autouse=True)
def _vllm(monkeypatch):
    """Two modules of vLLM's, as far as they are asked here: importing the real ones takes 10 s."""
    vllm, platforms = ModuleType("vllm"), ModuleType("vllm.platforms")
    vllm.__version__ = "0.32.0"
    platforms.current_platform = SimpleNamespace(is_cpu=lambda: False, get_device_name=lambda: "NVIDIA H100")
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)


def model(*, mla=False, hybrid=False, heads=4, **text):
    return SimpleNamespace(
        use_mla=mla, is_hybrid=hybrid, is_encoder_decoder=False, architecture="LlamaForCausalLM",
        hf_text_config=SimpleNamespace(**text), get_num_kv_heads=lambda to: heads // to.tensor_parallel_size,
    )  # fmt: skip


def config(of=None, backend=None, connector="NixlConnector", extra=None, **cache):
    return SimpleNamespace(
        model_config=of or model(),
        parallel_config=SimpleNamespace(
            tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=3, decode_context_parallel_size=1
        ),
        cache_config=SimpleNamespace(**{"block_size": 16, "cache_dtype": "auto"} | cache),
        kv_transfer_config=SimpleNamespace(kv_connector=connector, kv_connector_extra_config=extra),
        attention_config=SimpleNamespace(backend=backend and SimpleNamespace(name=backend)),
        use_v2_model_runner=True,
    )


SETTINGS = Settings(isolation="recreate")


def test_all_that_a_configuration_says():
    facts = static_facts(config(backend="FLASH_ATTN", user_specified_block_size=True), SETTINGS)
    assert facts == Facts(
        vllm="0.32.0", nixl=facts.nixl, model_class="gqa", architecture="LlamaForCausalLM", backend="FLASH_ATTN",
        block_size=16, kv_heads_per_rank=2, tp=2, pp=1, dp=3, dcp=1, kv_cache_dtype="auto", connector="NixlConnector",
        gpu="NVIDIA H100", runner="v2", isolation="recreate",
    )  # fmt: skip


def test_a_backend_and_a_block_size_that_vllm_will_choose_are_not_known_yet():
    facts = static_facts(config(), SETTINGS)
    assert (facts.backend, facts.block_size) == (None, None)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (model(), "gqa"),
        (model(layer_types=["full_attention"] * 4), "gqa"),
        (model(layer_types=["full_attention", "sliding_attention"]), "hybrid"),
        (model(hybrid=True), "hybrid"),
        (model(mla=True), "mla"),
        (model(mla=True, index_topk=2048), "mla_sparse"),
    ],
)
def test_the_class_of_a_model(of, expected):
    assert static_facts(config(of), SETTINGS).model_class == expected


def test_a_nested_connector():
    children = [{"kv_connector": "OffloadingConnector"}, {"kv_connector": "NixlConnector"}]
    facts = static_facts(config(connector="MultiConnector", extra={"connectors": children}), SETTINGS)
    assert (facts.connector, facts.nested_in) == ("NixlConnector", "MultiConnector")
    alone = static_facts(config(connector="MultiConnector", extra={"connectors": children[:1]}), SETTINGS)
    assert (alone.connector, alone.nested_in) == ("MultiConnector", None)


def test_what_cannot_be_read_is_not_known(monkeypatch):
    monkeypatch.delenv("KVFLAGS_STRICT")
    broken = config()
    del broken.model_config, broken.attention_config
    facts = static_facts(broken, SETTINGS)
    assert (facts.model_class, facts.kv_heads_per_rank, facts.backend, facts.tp) == (None, None, None, 2)


def test_a_worker_counts_in_the_kernels_blocks_and_the_gate_does_not(watched):
    assert worker_facts(watched.worker) == {"backend": "CPU_ATTN", "block_size": 128, "transport": "UCX"}
