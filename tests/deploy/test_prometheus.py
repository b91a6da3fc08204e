# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus scrapes a real collector: every rule and every panel that we ship finds what it asks for."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import filled
import httpx
import pytest
import yaml
from needed import program
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_server import Prometheus, prometheus, until
from sites import Site

from kvflags.telemetry.attributes import SPAN_NAME, Name

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "kvflags.rules.yml"
BOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))
_PROTOBUF = {"Content-Type": "application/x-protobuf"}
# What Grafana puts in.
_VARIABLES = {"$flag": ".*", "$job": ".*", "$__rate_interval": "1m", "$__interval": "1m"}
_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",)}


def _panels() -> list[tuple[str, str]]:
    """(where it stands, expression) of everything in the dashboards that asks Prometheus."""
    found = []
    for path in BOARDS:
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            found += [(f"{path.stem}: {panel['title']}", target["expr"]) for target in panel["targets"]]
        found += [(f"{path.stem}: {one['name']}", one["expr"]) for one in board["annotations"]["list"]]
        queries = (one["query"] for one in board["templating"]["list"] if one["type"] == "query")
        found += [(f"{path.stem}: {query['refId']}", _series(query["query"])) for query in queries]
    return found


def _series(query: str) -> str:
    """What label_values(series, label) looks at."""
    [(series, label)] = re.findall(r"^label_values\((\w+), (\w+)\)$", query)
    return f"count by ({label}) ({series})"


def _alerts() -> list[tuple[str, str]]:
    """(name, what it compares) of each alert, without the limit: a healthy fleet has the number all the same.

    Refusals only by their label: those of status 5xx need a database that is away.
    """
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    return [
        (rule["alert"], re.sub(r" [=<>]+ [\d.]+$|^absent", "", rule["expr"]).replace('status=~"5.."', 'status=~".+"'))
        for rule in rules
    ]


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> Iterator[tuple[Site, Prometheus]]:
    """A collector that is used in every way that a panel shows, and the server that scrapes it each second."""
    program("prometheus", "prometheus")
    site, ended = Site(tmp_path_factory.mktemp("site"), "healthy"), threading.Event()
    busy = threading.Thread(target=_use, args=(site.url, site.token("ann"), ended))
    with prometheus(tmp_path_factory.mktemp("prometheus"), site.url, RULES) as server:
        busy.start()
        try:
            yield site, server
        finally:
            ended.set()
            busy.join()
            site.service.stop()


def _use(url: str, token: str, ended: threading.Event) -> None:
    sent = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=sent, timeout=60, trust_env=False) as http:
        reasons = 0
        while not ended.wait(0.3):
            body = _transfers()
            for content in (body, body, b"\xff", _transfers(ago_ns=9 * 86_400 * 10**9)):
                http.post("/v1/traces", content=content, headers=_PROTOBUF)
            reasons += 1
            change = {"author": "ann", "reason": f"reason {reasons}", "percent": 40.0 + reasons % 2}
            assert http.put(f"/api/v1/flags/{filled.KEY}/target", json=change).status_code == 200


def _transfers(ago_ns: int = 0) -> bytes:
    """One of each arm that succeeded, and one that failed."""
    request, now = ExportTraceServiceRequest(), time.time_ns() - ago_ns
    spans = request.resource_spans.add().scope_spans.add().spans
    for number, (arm, kind) in enumerate([("treatment", ""), ("control", ""), ("control", "transfer_failed")], 1):
        span = spans.add(name=SPAN_NAME, trace_id=(now + number).to_bytes(16, "big"), span_id=number.to_bytes(8, "big"))
        span.start_time_unix_nano, span.end_time_unix_nano = now - number * 1_700_000, now
        span.attributes.add(key=Name.ARM).value.string_value = arm
        if kind:
            span.status.code = 2
            span.attributes.add(key=Name.ERROR_TYPE).value.string_value = kind
    return request.SerializeToString()


@pytest.mark.parametrize(("where", "expression"), [*_panels(), *_alerts()])
def test_what_it_asks_for_is_there(watched, where, expression):
    for name, value in _VARIABLES.items():
        expression = expression.replace(name, value)
    assert "$" not in expression
    until(lambda: watched[1].query(expression), lambda: f"{where} finds nothing: {expression}")


def test_only_metrics_that_the_collector_declares_are_asked_for(watched):
    families = text_string_to_metric_families(_scraped(watched[0]))
    declared = {f"{one.name}{suffix}" for one in families for suffix in _SUFFIXES.get(one.type, ("",))}
    asked = {name for _, text in [*_panels(), *_alerts()] for name in re.findall(r"\bkvflags_\w+", text)}
    assert asked <= declared
    # And what is told of rollouts is shown.
    assert {name for name in declared if name.startswith("kvflags_rollout_")} - asked == {
        "kvflags_rollout_evidence_timestamp_seconds"
    }


def test_the_scrape_is_taken_whole_and_its_series_are_bounded(watched):
    site, server = watched
    until(lambda: [one["health"] for one in server.targets()] == ["up"], server.targets)
    [series] = server.query('scrape_samples_scraped{job="kvflags"}')
    assert int(series["value"][1]) < 1000
    # 56 deployments, and none of them is a label of anything.
    assert "chat-00" not in _scraped(site)


def test_a_bucket_leads_to_a_trace(watched):
    def found() -> list[dict]:
        return watched[1].exemplars('kvflags_transfer_seconds_bucket{arm="treatment"}')

    until(found, lambda: "no exemplar was kept")
    traces = {one["labels"]["trace_id"] for series in found() for one in series["exemplars"]}
    assert all(re.fullmatch(r"[0-9a-f]{32}", trace) for trace in traces)


def _scraped(site: Site) -> str:
    headers = {"Accept": "application/openmetrics-text; version=1.0.0"}
    return httpx.get(f"{site.url}/metrics", headers=headers, timeout=60, trust_env=False).text


@pytest.mark.parametrize(
    "command",
    [
        ["check", "config", DEPLOY / "prometheus" / "prometheus.yml"],
        ["check", "rules", RULES],
        ["test", "rules", DEPLOY / "prometheus" / "kvflags.rules.test.yml"],
    ],
    ids=["configuration", "rules", "when alerts fire"],
)
def test_promtool_agrees(command):
    done = subprocess.run([program("promtool", "prometheus"), *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def test_every_alert_has_a_test_that_sees_it_fire():
    tests = yaml.safe_load((DEPLOY / "prometheus" / "kvflags.rules.test.yml").read_text())["tests"]
    fired = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert fired == {name for name, _ in _alerts()}
