# SPDX-License-Identifier: Apache-2.0
"""vLLM's own OpenAI server, as operators run it: for what talks to engines over HTTP."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import httpx
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kvflags_cli.canary.prompts import WORDS
from kvflags_cli.demo.engine import _ENVIRONMENT, _core
from kvflags_cli.demo.pair import free_port

__all__ = ["Server", "give_tokenizer"]


def give_tokenizer(model):
    """A tokenizer that knows the canary's words, one token each, beside the model's weights."""
    vocabulary = {word: number for number, word in enumerate(["<unk>", "<s>", "</s>", *sorted(set(WORDS))])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(model)
    return model


class Server:
    """One server process; `environ` is added to the test's own."""

    def __init__(self, model, kv_role, log, environ):
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        transfer = {"kv_connector": "NixlConnector", "kv_role": kv_role, "kv_buffer_device": "cpu"}
        options = {
            "model": model,
            "host": "127.0.0.1",
            "port": self.url.rpartition(":")[2],
            "served-model-name": "tiny",
            "kv-transfer-config": json.dumps(transfer),
            "max-model-len": 2048,
            "max-num-seqs": 8,
            "dtype": "float32",
            "num-gpu-blocks-override": 96,
        }
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
        command += [part for name, value in options.items() for part in (f"--{name}", str(value))]
        place = {
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
            "VLLM_CPU_OMP_THREADS_BIND": _core(kv_role),
        }
        with log.open("w") as out:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **_ENVIRONMENT, **place, **environ},
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self, timeout=300):
        until = time.monotonic() + timeout
        while True:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", timeout=2).is_success:
                    return self
            gone = self._process.poll() is not None
            if gone or time.monotonic() > until:
                pytest.fail(self.log.read_text(errors="replace")[-3000:])
            time.sleep(0.5)

    def stop(self):
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
