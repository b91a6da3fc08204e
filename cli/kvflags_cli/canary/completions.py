# SPDX-License-Identifier: Apache-2.0
"""One engine's OpenAI completions, as the canary asks for them."""

from __future__ import annotations

import re
import secrets
from types import TracebackType
from typing import Any, Self

import httpx

from kvflags.errors import KvflagsError, OperatorError, Unauthorized, Unavailable, UsageError
from kvflags_cli.canary.compare import Answer

__all__ = ["PREFILL", "Engine", "Failed"]

Json = dict[str, Any]

# Logprobs returned at each token: enough to see how clear a choice was. vLLM allows 20 unless told otherwise.
_TOP = 5
# What the decode engine found in a cache outside its own, which is what a connector brought (tokens; vLLM's metrics).
_FETCHED = re.compile(rb"^vllm:external_prefix_cache_hits(?:_total)?(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
# What a router sends along with a prefill; the answer's own go into the decode request as they are.
PREFILL = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


class Failed(KvflagsError):
    """The engine took the request and could not answer it: its transfer failed, or it is overloaded."""


class Engine:
    """`role` is for messages. A request waits `timeout` seconds at most. All raise KvflagsError."""

    def __init__(self, role: str, url: str, *, key: str, model: str | None, timeout: float) -> None:
        self.role = role
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(base_url=url.rstrip("/"), headers=headers, timeout=httpx.Timeout(timeout, connect=5))
        self._url, self._model = url, model

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def prefill(self, prompt: str) -> Json:
        """Fill the cache for this prompt: what a decode engine needs to fetch it."""
        params = self._ask(prompt, tokens=1, kv_transfer_params=PREFILL).get("kv_transfer_params")
        if not isinstance(params, dict):
            raise UsageError(
                f"{self._url} prefilled, but offers nothing to fetch",
                hint="is it a prefill engine, with a NixlConnector? --prefill and --decode are easily swapped",
            )
        return params

    def answer(self, prompt: str, tokens: int, params: Json | None = None) -> Answer:
        """Continue the prompt greedily; `params`: with the cache that a prefill engine filled, else with its own.

        Raises:
            Failed: with an answer that ended early, which is how vLLM tells of a failed transfer.
        """
        more = {"kv_transfer_params": params} if params else {}
        choice = self._ask(prompt, tokens=tokens, **more)["choices"][0]
        if choice["finish_reason"] != "length":
            raise Failed(f"the {self.role} engine ended a request with {choice['finish_reason']!r}")
        told = choice["logprobs"]
        return Answer(told["tokens"], told["top_logprobs"])

    def fetched(self) -> float | None:
        """Tokens it found in a cache outside its own since it started; None where its metrics do not say."""
        try:
            response = self._http.get("/metrics")
        except httpx.HTTPError:
            return None
        found = _FETCHED.findall(response.content) if response.is_success else []
        return sum(map(float, found)) if found else None

    def _ask(self, prompt: str, *, tokens: int, **more: Any) -> Json:  # noqa: ANN401 - JSON values
        self._model = self._model or self._first_model()
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "logprobs": _TOP,
            "ignore_eos": True,
            # By id: two tokens may read alike.
            "return_tokens_as_token_ids": True,
            # A prefix that an earlier request left in the cache would be taken in place of what is to be tested.
            "cache_salt": secrets.token_hex(16),
        }
        return self._json("POST", "/v1/completions", json=body | more)

    def _first_model(self) -> str:
        listed = self._json("GET", "/v1/models").get("data")
        if not listed:
            raise UsageError(f"{self._url} serves no model", hint="is it a vLLM server?")
        name: str = listed[0]["id"]
        return name

    def _json(self, method: str, path: str, **options: Any) -> Json:  # noqa: ANN401 - httpx's own options
        try:
            response = self._http.request(method, path, **options)
            body = response.json()
        except httpx.HTTPError as error:
            why = "it does not answer" if isinstance(error, httpx.TimeoutException) else str(error).lower()
            raise Unavailable(
                f"cannot reach the {self.role} engine at {self._url}: {why}",
                hint="give the engine's own address, not the router's: --prefill http://HOST:PORT --decode http://HOST:PORT",
            ) from error
        except ValueError:
            body = None
        if response.is_success and isinstance(body, dict):
            return body
        raise _refused(self.role, response.status_code, body)


def _refused(role: str, status: int, body: object) -> KvflagsError:
    told = body.get("error", body) if isinstance(body, dict) else {}
    says = told.get("message") if isinstance(told, dict) else None
    message = f"the {role} engine answered {status}" + (f": {str(says)[:500]}" if says else "")
    if status in {401, 403}:
        return Unauthorized(message, hint="the key of an engine goes into OPENAI_API_KEY")
    if status in {400, 404, 422}:
        return UsageError(message, hint="a model with a short context wants --longest; --model names another model")
    return Failed(message) if status >= 500 else OperatorError(message)
