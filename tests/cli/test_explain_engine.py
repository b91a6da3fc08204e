# SPDX-License-Identifier: Apache-2.0
"""`kvflags explain --engine-args`: the gate's answer for an engine that nobody has started."""

import json

import pytest

from kvflags.errors import UsageError
from kvflags_cli.engine_args import facts_of

NIXL = """'{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'"""
GOOD = f"-tp 2 --attention-backend FLASH_ATTN --kv-transfer-config {NIXL}"


@pytest.fixture
def model(tmp_path):
    """A function that writes a model's configuration and returns its directory."""

    def write(**config):
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return write


LLAMA = {"architectures": ["LlamaForCausalLM"], "num_attention_heads": 32, "num_key_value_heads": 8}


def _explain(kvflags, arguments, *more):
    result = kvflags("explain", "--engine-args", arguments, "--vllm", "0.33", *more, "--json")
    assert result.code == 0
    return json.loads(result.out)["data"]


def test_an_engine_on_which_it_works(kvflags, model):
    answer = _explain(kvflags, f"serve {model(**LLAMA)} {GOOD}", "--assume", "isolation=router")
    assert (answer["eligible"], answer["layout"], answer["refusals"]) == (True, "BHLNC", [])
    facts = answer["facts"]
    assert (facts["kv_heads_per_rank"], facts["model_class"], facts["tp"]) == (4, "gqa", 2)
    assert (facts["architecture"], facts["connector"], facts["backend"]) == (
        "LlamaForCausalLM",
        "NixlConnector",
        "FLASH_ATTN",
    )


def test_in_words(kvflags, model):
    arguments = f"--model {model(**LLAMA)} {GOOD} --tensor_parallel_size=8"
    result = kvflags("explain", "--engine-args", arguments, "--vllm", "0.33.1")
    assert result.code == 0
    assert "one_kv_head_per_rank" in result.out
    assert "isolation" in result.out
    ok = kvflags("explain", "--engine-args", arguments, "--vllm", "0.29.0", "--assume", "isolation=recreate")
    assert "It will work: the gate is met, and the layout to ask for is BHLNC." in ok.out


def test_what_is_not_said_is_a_no(kvflags):
    codes = {one["code"] for one in _explain(kvflags, "--model meta/llama")["refusals"]}
    assert {"connector:unknown", "model_class:unknown", "backend:unknown", "isolation"} <= codes


@pytest.mark.parametrize(
    ("config", "model_class"),
    [
        (LLAMA, "gqa"),
        ({"text_config": LLAMA, "architectures": ["Some"]}, "gqa"),
        ({**LLAMA, "kv_lora_rank": 512}, "mla"),
        ({**LLAMA, "kv_lora_rank": 512, "index_topk": 2048}, "mla_sparse"),
        ({**LLAMA, "layer_types": ["full_attention", "sliding_attention"]}, "hybrid"),
        ({**LLAMA, "layer_types": ["full_attention"]}, "gqa"),
        ({**LLAMA, "mamba_d_state": 16}, "hybrid"),
    ],
)
def test_the_models_class_is_read_from_its_configuration(model, config, model_class):
    assert facts_of(f"--model {model(**config)}", "0.33").model_class == model_class


def test_a_nested_connector_and_an_attention_configuration():
    children = {"connectors": [{"kv_connector": "NixlConnector"}, {"kv_connector": "OffloadingConnector"}]}
    nested = json.dumps({"kv_connector": "MultiConnector", "kv_connector_extra_config": children})
    facts = facts_of(f"""--kv-transfer-config '{nested}' -ac '{{"backend": "flashinfer"}}' -dcp 2""", "0.33")
    assert (facts.connector, facts.nested_in, facts.backend, facts.dcp) == (
        "NixlConnector",
        "MultiConnector",
        "FLASHINFER",
        2,
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--kv-transfer-config {broken", "--kv-transfer-config is not JSON"),
        ("--kv-transfer-config []", "is not a JSON object"),
        ("-tp two", "invalid int value"),
        ("-tp 0", "1 or more"),
        ("--model 'x", "No closing quotation"),
        ("--config engine.yaml", "--config file is not read"),
    ],
)
def test_arguments_that_cannot_be_read(arguments, says):
    with pytest.raises(UsageError, match=says) as raised:
        facts_of(arguments, "0.33")
    assert raised.value.hint


@pytest.mark.parametrize("assumption", ["colour=red", "gpu", "gpu="])
def test_an_assumption_that_is_none(assumption):
    with pytest.raises(UsageError, match="not a fact"):
        facts_of("", "0.33", [assumption])


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain",),
        ("explain", "key"),
        ("explain", "key", "--engine-args", "", "--vllm", "0.33"),
        ("explain", "--engine-args", "-tp 2"),
        ("explain", "key", "--deployment", "a/b/c", "--vllm", "0.33"),
    ],
)
def test_two_ways_to_ask_that_do_not_mix(kvflags, arguments):
    result = kvflags(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "see `kvflags explain --help`" in result.err
