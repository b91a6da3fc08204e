# SPDX-License-Identifier: Apache-2.0
"""`kvflags telemetry show`: what real engine code of ours sent over real HTTP, as it left it on this machine."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from kvflags.decision.client import Client, ClientError
from kvflags.flags import Facts
from kvflags.sent import Kind, LastSent, Result
from kvflags.telemetry.export import Exporter
from kvflags.telemetry.instruments import InstrumentName
from kvflags.telemetry.labels import Identity, Labels, front_end_labels
from kvflags.telemetry.metrics import Report
from kvflags.telemetry.records import Records, Transfer
from kvflags.telemetry.reporter import Reporter
from kvflags.telemetry.tally import Tally
from kvflags_cli.render.numbers import size

TOKEN = "kvf_secret"
LABELS = Labels("engine-d", 0, {"service.name": "vllm", "kvflags.deployment": "c/ns/\u202edog"}, {"kvflags.arm": "on"})


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b"{}" if "/api/" in self.path else b""
        self.send_response(404 if self.path.endswith("heartbeat") else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def collector():
    """Takes everything but heartbeats."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    made = tmp_path / "engines"
    monkeypatch.setenv("KVFLAGS_STATE_DIR", str(made))
    return str(made)


@pytest.fixture
def sent(collector, folder):
    """One of each kind, as an engine sends them."""
    client = Client(collector, TOKEN, 5, state_dir=folder)
    client.register({"registration_id": "r-1", "deployment": "c/ns/d"})
    with pytest.raises(ClientError):
        client.heartbeat("r-1", {"seq": 1})
    records = Records()
    for number in range(3):
        records.append(Transfer(f"r{number}", "engine-p", f"q{number}", 5, 1_000, 4_000, 640, 3, 700))
    exporter = Exporter(records, lambda: LABELS, collector, TOKEN)
    tally = Tally()
    tally.add(lambda interval: interval.count(InstrumentName.OUTPUT_TOKENS, 17))
    who = front_end_labels(Identity(id="e", deployment="c/ns/d", generation="g", role="decode"), None, Facts())
    reporter = Reporter(lambda: [Report(who, tally.take(), None)], collector, TOKEN)
    for thread in (exporter, reporter):
        thread.start()
        thread.shutdown(5)
    return collector


def test_everything_that_was_sent_is_there_and_the_token_is_not(kvflags, sent, folder):
    result = kvflags("telemetry", "show", "--json")
    data = result.document["data"]
    told = {one["kind"]: one for one in data["payloads"]}
    assert (list(told), data["folder"]) == ([kind.value for kind in Kind], folder)
    assert {kind: (one["to"].removeprefix(sent), one["result"], one["items"]) for kind, one in told.items()} == {
        "registration": ("/api/v1/engines/register", "taken", None),
        "heartbeat": ("/api/v1/engines/r-1/heartbeat", "refused", None),
        "traces": ("/v1/traces", "taken", 3),
        "metrics": ("/v1/metrics", "taken", 1),
    }
    assert told["registration"]["body"] == {"registration_id": "r-1", "deployment": "c/ns/d"}
    [span, *_] = told["traces"]["body"]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (span["name"], len(span["traceId"]), int(span["traceId"], 16) > 0) == ("kv.transfer", 32, True)
    assert TOKEN not in result.out


def test_one_kind_alone(kvflags, sent):
    assert [one["kind"] for one in kvflags("telemetry", "show", "metrics", "--json").document["data"]["payloads"]] == [
        "metrics"
    ]


def test_it_can_be_read(kvflags, sent):
    text = kvflags("telemetry", "show").out
    payloads = kvflags("telemetry", "show", "--json").document["data"]["payloads"][2:]
    assert [line for line in text.splitlines() if line.isupper()] == ["REGISTRATION", "HEARTBEAT", "TRACES", "METRICS"]
    lines = [line.split(None, 1) for line in text.splitlines()]
    assert ["to", f"{sent}/v1/traces"] in lines
    assert ["kvflags.transfer.descriptors", "3"] in lines
    for told, what in zip(payloads, ("3 spans", "1 metric"), strict=True):
        assert ["holds", f"{what}, {size(told['size'])}"] in lines
    assert [InstrumentName.OUTPUT_TOKENS, "asInt 17"] in lines
    assert "\n1 more span; --json has all of them.\n" in text
    # What would turn the direction of the text is written out.
    assert "c/ns/\\u202edog" in text


def test_what_was_kept_here_is_told_as_such(kvflags, folder, tmp_path):
    records = Records()
    records.append(Transfer("r", "engine-p", "q", 5, 1_000, 4_000, 640, 3, 700))
    exporter = Exporter(records, lambda: LABELS, (tmp_path / "engines" / "local").as_uri())
    exporter.start()
    exporter.shutdown(5)
    assert "kept on this machine, sent to nobody" in kvflags("telemetry", "show").out


def test_nothing_was_sent(kvflags, folder):
    result = kvflags("telemetry", "show")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"Nothing: no engine on this machine has sent anything, as far as {folder} tells.")
    assert kvflags("telemetry", "show", "--json").document["data"] == {"folder": folder, "payloads": []}


def test_what_was_too_large_is_told(kvflags, folder):
    sent = LastSent(folder, Kind.TRACES, "http://c:1/v1/traces")
    sent.note(b"x" * (3 << 20), Result.TAKEN)
    sent.write(at_once=True)
    assert "3 MiB (too large to be kept)" in kvflags("telemetry", "show").out


@pytest.mark.parametrize(
    ("kind", "body"), [("traces", b"\xff\xff"), ("heartbeat", b"\xff"), ("heartbeat", b"[" * 100_000)]
)
def test_what_cannot_be_decoded_is_one_clear_error(kvflags, folder, kind, body):
    sent = LastSent(folder, Kind(kind), "http://c:1")
    sent.note(body, Result.TAKEN)
    sent.write(at_once=True)
    result = kvflags("telemetry", "show")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"error: the last {kind} in {folder} cannot be read: ")
    assert "hint: run this as the user that the engines run as" in result.err


def test_what_others_can_read_is_not_shown(kvflags, sent, folder, tmp_path):
    (tmp_path / "engines" / "last-traces.sent").chmod(0o644)
    result = kvflags("telemetry", "show")
    assert (result.code, result.out) == (2, "")
    assert "can be read by others (chmod 600)" in result.err


def test_without_a_folder(kvflags, monkeypatch):
    for name in ("KVFLAGS_STATE_DIR", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    assert "hint: set KVFLAGS_STATE_DIR as the engines have it" in kvflags("telemetry", "show").err
