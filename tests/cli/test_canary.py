# SPDX-License-Identifier: Apache-2.0
"""What the canary makes of answers. The engines are a stand-in with a script; tests/engine has real ones."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf

import pytest

from kvflags_cli.canary.compare import Answer, compare
from kvflags_cli.canary.prompts import prompts

FETCHED = b'# TYPE vllm:external_prefix_cache_hits counter\nvllm:external_prefix_cache_hits_total{engine="0"} %d.0\n'


def answer(*logprobs: float, tokens: str = "abcdefgh", other: str = "z", margin: float = 1.0) -> Answer:
    """Tokens a, b, c with these logprobs, and a second choice `margin` behind each."""
    chosen = tokens[: len(logprobs)]
    return Answer(
        list(chosen), [{token: value, other: value - margin} for token, value in zip(chosen, logprobs, strict=True)]
    )


def test_equal_answers_are_the_same():
    found = compare(answer(-1, -2), answer(-1, -2), 0.1)
    assert (found.same, found.compared, found.delta) == (True, 2, 0)


@pytest.mark.parametrize(("delta", "at"), [(0.09, None), (0.11, 1)])
def test_a_logprob_may_differ_by_the_tolerance(delta, at):
    found = compare(answer(-1, -2, -3), answer(-1, -2 - delta, -3), 0.1)
    assert (found.at, found.delta) == (at, pytest.approx(delta))


@pytest.mark.parametrize(("margin", "same"), [(0.05, True), (0.5, False)])
def test_another_choice_counts_where_it_was_clear(margin, same):
    one = answer(-1, -2, -3, margin=margin)
    other = Answer(["a", "z", "x"], [one.top[0], {"z": -2, "b": -2 - margin}, {"x": -1}])
    found = compare(one, other, 0.1)
    # What follows another choice is another text, and says nothing.
    assert (found.same, found.compared) == (same, 2)


def test_a_choice_that_the_other_did_not_even_consider_is_a_mismatch():
    found = compare(answer(-1), Answer(["q"], [{"q": -1}]), 10)
    assert (found.at, found.delta) == (0, inf)


def test_an_answer_that_ends_early_is_a_mismatch():
    assert compare(answer(-1, -2), answer(-1), 0.1).at == 1


def test_prompts_are_the_same_in_every_run_and_cover_short_and_long():
    asked = prompts(8, 768)
    assert asked == prompts(8, 768)
    lengths = [len(text.split()) for text in asked.values()]
    assert (lengths[0], lengths[-1], lengths) == (24, 768, sorted(lengths))
    assert len(set(asked.values())) == 8


class Engines:
    """One server that is both engines: `script` says what the three requests of a prompt are answered with."""

    def __init__(self):
        self.local = self.again = self.crossed = answer(-1, -2)
        self.fails = {}
        self.params = {"remote_engine_id": "p"}
        self.fetching = True
        self.fetched = 0
        self.asked = []
        engines = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path == "/metrics":
                    return self._send(200, FETCHED % engines.fetched)
                return self._json(200, {"data": [{"id": "tiny"}]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                engines.asked.append(body)
                return self._json(*engines.told(body))

            def _json(self, status, body):
                self._send(status, json.dumps(body).encode())

            def _send(self, status, body):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def told(self, body):
        params = body.get("kv_transfer_params")
        kind = "local" if params is None else "prefill" if params.get("do_remote_decode") else "crossed"
        if kind in self.fails:
            return self.fails[kind], {"error": {"message": "KV load failed"}}
        if kind == "prefill":
            return 200, {"choices": [{}], "kv_transfer_params": self.params}
        self.fetched += self.fetching and kind == "crossed"
        firsts = sum("kv_transfer_params" not in one and one["prompt"] == body["prompt"] for one in self.asked)
        found = self.crossed if kind == "crossed" else self.local if firsts == 1 else self.again
        logprobs = {"tokens": found.tokens, "top_logprobs": found.top}
        return 200, {"choices": [{"finish_reason": "length", "logprobs": logprobs}]}

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def engines():
    one = Engines()
    yield one
    one.close()


@pytest.fixture
def run(kvflags, engines):
    def invoke(*more: str):
        return kvflags("canary", "run", "--prefill", engines.url, "--decode", engines.url, "--prompts", "2", *more)

    return invoke


def test_what_agrees_exits_0(run, engines):
    result = run("--json")
    found = result.document["data"]
    assert (result.code, found["outcome"], found["compared"], found["mismatched"]) == (0, "match", 2, 0)
    assert (found["max_delta"], found["fetched_tokens"], found["recorded"]) == (0, 2, None)
    # Nothing that one request left in a cache may serve another.
    salts = [one["cache_salt"] for one in engines.asked]
    assert len(salts) == len(set(salts)) == 8
    assert all(one["temperature"] == 0 and one["model"] == "tiny" for one in engines.asked)


def test_a_mismatch_exits_1_and_says_where(run, engines):
    engines.crossed = answer(-1, -3)
    result = run()
    assert result.code == 1
    assert "token 2 differs by 1, more than 0.1" in result.out
    assert "do not serve with this" in result.out


def test_an_engine_that_differs_from_itself_tells_nothing(run, engines):
    engines.again = answer(-1, -3)
    result = run("--json")
    assert (result.code, result.document["data"]["outcome"]) == (3, "undecided")
    assert "by itself, the decode engine differs" in result.document["data"]["prompts"][0]["says"]


def test_where_nothing_was_fetched_nothing_was_tested(run, engines):
    engines.fetching = False
    result = run()
    assert result.code == 3
    assert "the transfer was not tested" in result.out


def test_a_transfer_that_fails_is_undecided_and_named(run, engines):
    engines.fails = {"crossed": 500}
    result = run()
    assert result.code == 3
    assert "the decode engine answered 500: KV load failed" in result.out


def test_swapped_engines_are_told_apart(run, engines):
    engines.params = None
    result = run()
    assert result.code == 2
    assert "offers nothing to fetch" in result.err
    assert "swapped" in result.err


@pytest.mark.parametrize(("status", "code"), [(401, 4), (404, 2), (400, 2), (429, 2)])
def test_a_refused_request_says_so(run, engines, status, code):
    engines.fails = {"local": status}
    result = run()
    assert result.code == code
    assert f"the decode engine answered {status}: KV load failed" in result.err


def test_an_engine_that_is_not_there(kvflags):
    result = kvflags("canary", "run", "--prefill", "http://127.0.0.1:9", "--decode", "http://127.0.0.1:9")
    assert result.code == 5
    assert "cannot reach the decode engine" in result.err


@pytest.mark.parametrize(
    "wrong", [("--prompts", "0"), ("--tolerance", "-1"), ("--longest", "3"), ("--deployment", "a\x00b")]
)
def test_bad_input_is_refused_before_anything_is_asked(run, engines, wrong):
    assert run(*wrong).code == 2
    assert engines.asked == []


def test_the_collector_is_told_and_condemns(run, engines, fleet):
    fleet.pair("prod/chat/a", "r1")
    engines.crossed = answer(-1, -3)
    result = run("--deployment", "prod/chat/a", "--generation", "r1", "--author", "cron", "--json")
    assert result.code == 1
    assert result.document["data"]["recorded"]["deployment"] == "prod/chat/a"
    # No flag decided anything for it: an alarm, and nothing to condemn.
    assert result.document["data"]["recorded"]["condemned"] == []


def test_a_deployment_that_the_collector_does_not_know(run, fleet):
    result = run("--deployment", "prod/chat/typo")
    assert result.code == 2
    assert "no deployment" in result.err


def test_a_mismatch_is_the_exit_code_also_where_nobody_can_be_told(run, engines):
    elsewhere = ("--deployment", "prod/chat/a", "--collector", "http://127.0.0.1:9")
    assert run(*elsewhere).code == 5
    engines.crossed = answer(-1, -3)
    result = run(*elsewhere)
    assert result.code == 1
    assert "the result was not recorded: cannot reach the collector" in result.err
