# SPDX-License-Identifier: Apache-2.0
"""The webhook, told to a real HTTP server: what is told, signed how, tried again, killed in between, by several."""

import base64
import json
import re
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from listening import listening

from kvflags.errors import UsageError
from kvflags.flags import Step, Target
from kvflags_collector.app import create_app
from kvflags_collector.rollout import flags, ramp
from kvflags_collector.rollout.guard import Act, Finding
from kvflags_collector.settings import Settings
from kvflags_collector.store.roles import LEASE_US
from kvflags_collector.store.webhook_tables import webhook_events
from kvflags_collector.times import SECOND
from kvflags_collector.webhook import messenger, outbox, send
from kvflags_collector.webhook.messenger import Messenger

KEY = "cross-layer-blocks"
SECRET = "0123456789abcdef0123456789abcdef"
WHO = {"author": "ann", "reason": "because"}
DAY_US = 86_400 * SECOND


class Receiver:
    """Keeps what it was sent. `status`: what it answers; `seen`: (headers, body) of each request."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/hook"
        self.status = 204
        self.location = None
        self.seen = []

    @property
    def events(self):
        return [(body["event"], body["id"]) for _, body in self.seen]

    def of(self, event):
        return [body for _, body in self.seen if body["event"] == event]


@pytest.fixture
def receiver():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.seen.append(({**self.headers, "path": self.path, "raw": body}, json.loads(body)))
            self.send_response(taken.status)
            if taken.location:
                self.send_header("Location", taken.location)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        taken = Receiver(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield taken
        server.shutdown()
        thread.join()


def telling(fleet, receiver, holder="one"):
    """A messenger whose passes the test makes."""
    target = send.Target(receiver.url, SECRET)
    return Messenger(fleet.db, target, lambda: fleet.now, holder=holder)


@pytest.fixture
def told(fleet, receiver):
    """A flag with a ramp of two steps, the second by approval; and a messenger that began before it all."""
    fleet.create(expires="2027-03-01")
    for name in ("c/ns/a", "c/ns/b"):
        fleet.pair(name)
    one = telling(fleet, receiver)
    one.once()
    assert receiver.seen == []
    steps = (Step(Target(count=1), 0, sample=0), Step(Target(count=2), 0, approval=True))
    with fleet.db.write() as conn:
        ramp.plan(conn, KEY, steps, **WHO, now=fleet.now)
    fleet.tick()
    return one


def test_a_step_of_the_ramp(told, fleet, receiver):
    told.once()
    assert fleet.ask(outbox.standing) == outbox.Standing(1, 0, 0, None)
    [(headers, body)] = receiver.seen
    assert body == {
        "schema": "kvflags.webhook/1",
        "id": f"{KEY}/revision/3",
        "event": "ramp_step",
        "flag": KEY,
        "feature": "cross_layer_blocks",
        "revision": 3,
        "at": "2027-01-15T08:00:00.000000Z",
        "says": "ramp step by kvflags: the step's time and sample are complete",
        "data": {
            "action": "ramp_step",
            "author": "kvflags",
            "reason": "the step's time and sample are complete",
            "evidence": {"step": 0, "treated_and_effective": 0, "since": "2027-01-15T08:00:00.000000Z"},
            "phase": "running",
            "target": "1 deployment",
        },
    }
    assert (headers["path"], headers["Content-Type"]) == ("/hook", "application/json")
    told.once()
    assert len(receiver.seen) == 1


def test_it_is_signed_over_id_time_and_body(told, fleet, receiver):
    told.once()
    headers, _ = receiver.seen[0]
    name, at = headers["webhook-id"], headers["webhook-timestamp"]
    assert (name, at) == (f"{KEY}/revision/3", str(fleet.now // SECOND))
    assert headers["webhook-signature"] == send.signature(SECRET.encode(), name, int(at), headers["raw"])
    assert headers["webhook-signature"] != send.signature(SECRET.encode(), name, int(at) + 1, headers["raw"])


def test_the_signature_is_that_of_the_specification():
    """Computed beforehand with openssl."""
    assert (
        send.signature(b"0123456789abcdef", "a/b", 1_800_000_000, b'{"x": 1}')
        == "v1,HNSn8l/vj8qfHkeyHBa1EwharFrYMx/SXicudyG7Xno="
    )


def test_an_abort_by_a_guard_and_what_has_to_be_replaced(told, fleet, receiver):
    treated = next(name for name, arm in fleet.rows("assignments", "deployment", "arm") if arm == "treatment")
    fleet.pair(treated, "g2")
    with fleet.db.write() as conn:
        finding = Finding(metric="m", value=2.0, limit=1.0, n=9, says="too much", act=Act.ABORT)
        ramp.advance(conn, flags.get(conn, KEY), fleet.now, [lambda *_: [finding]])
    told.once()
    [automatic], [replace] = receiver.of("automatic_action"), receiver.of("replacement_needed")
    assert automatic["data"]["action"] == "guardrail_abort"
    assert automatic["data"]["evidence"]["findings"][0]["value"] == 2.0
    assert replace["data"] == {
        "deployment": treated,
        "generation": "g2",
        "epoch": 1,
        "reason": "guardrail",
        "engines": 2,
        "command": f"kvflags plan restarts {KEY} -o kubectl",
    }


def test_a_step_that_waits_for_nothing_but_approval(told, fleet, receiver):
    with fleet.db.write() as conn:
        asking = (Step(Target(count=1), 0, approval=True),)
        ramp.plan(conn, KEY, asking, **WHO, now=fleet.now)
    told.once()
    told.once()
    [body] = receiver.of("approval_needed")
    assert (body["id"], body["says"]) == (f"{KEY}/approval/4", "the step to 1 deployment waits for approval")
    assert body["data"] == {
        "target": "1 deployment",
        "command": f"kvflags rollout promote {KEY} --revision 4 --reason TEXT",
    }


def test_a_flag_whose_day_is_over_is_told_once_for_each_day(told, fleet, receiver):
    fleet.now += 60 * DAY_US
    told.once()
    told.once()
    assert [body["id"] for body in receiver.of("flag_expired")] == [f"{KEY}/expired/2027-03-01"]
    fleet.change("extend", "2027-04-01")
    fleet.now += 60 * DAY_US
    told.once()
    assert [body["data"]["expires"] for body in receiver.of("flag_expired")] == ["2027-03-01", "2027-04-01"]


def test_what_people_did_by_hand_is_no_event_and_history_is_not_told(fleet, receiver):
    fleet.create()
    fleet.pair()
    fleet.aim(percent=100)
    with fleet.db.write() as conn:
        flags.revise(conn, flags.get(conn, KEY), "complete", author="kvflags", reason="long ago", now=fleet.now - 1)
    one = telling(fleet, receiver)
    one.once()
    fleet.aim(percent=50)
    one.once()
    assert receiver.seen == []


def test_a_failure_is_tried_again_later_and_later_and_given_up_at_last(told, fleet, receiver):
    receiver.status = 503
    tried = []
    for _ in range(outbox.ATTEMPTS + 3):
        before = len(receiver.seen)
        told.once()
        told.once()
        tried.append(len(receiver.seen) - before)
        fleet.now += 3600 * SECOND
    assert tried == [1] * outbox.ATTEMPTS + [0] * 3
    [row] = [row for row in fleet.rows("webhook_events") if row[0] != "begun"]
    assert row[3:] == (outbox.ATTEMPTS, None, None, "it answered 503")
    assert len({headers["raw"] for headers, _ in receiver.seen}) == 1
    assert fleet.ask(outbox.standing) == outbox.Standing(0, 0, 1, "it answered 503")


def test_the_waits_double_up_to_an_hour(told, fleet, receiver):
    receiver.status = 500
    waits = []
    for _ in range(outbox.ATTEMPTS - 1):
        told.once()
        due = fleet.rows("webhook_events", "due_us")[-1][0]
        waits.append((due - fleet.now) // SECOND)
        fleet.now = due
    assert waits == [min(2**n, 3600) for n in range(outbox.ATTEMPTS - 1)]


def test_a_receiver_that_is_away_and_comes_back_gets_all(told, fleet, receiver):
    url, receiver.url = receiver.url, "http://127.0.0.1:9/hook"
    away = telling(fleet, receiver)
    away.once()
    assert receiver.seen == []
    waits = fleet.ask(outbox.standing)
    assert waits[:3] == (0, 1, 0)
    assert "ConnectionRefusedError" in waits.error
    receiver.url = url
    fleet.now += 2 * SECOND
    told.once()
    assert receiver.events == [("ramp_step", f"{KEY}/revision/3")]


def test_a_redirect_is_not_followed(told, fleet, receiver):
    receiver.status, receiver.location = 307, receiver.url.replace("/hook", "/elsewhere")
    told.once()
    assert [headers["path"] for headers, _ in receiver.seen] == ["/hook"]
    assert fleet.rows("webhook_events", "error")[-1] == ("it answered 307",)


def test_a_receiver_that_answers_byte_by_byte_is_not_waited_for_for_ever(told, fleet, receiver, monkeypatch):
    monkeypatch.setattr(send, "_DEADLINE_S", 0.5)
    enough = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        dribbling = threading.Thread(target=_dribble, args=(server, enough))
        dribbling.start()
        target = send.Target(f"http://127.0.0.1:{server.getsockname()[1]}/hook", SECRET)
        error = send.send(target, "id", b"{}", 0)
        enough.set()
        dribbling.join()
    assert error == "no whole answer in 0.5 s"


def _dribble(server, enough):
    """An answer without an end, well within the time that silence may last."""
    connection, _ = server.accept()
    with connection, suppress(OSError):
        connection.sendall(b"HTTP/1.1 2")
        while not enough.wait(0.05):
            connection.sendall(b"x")


def test_where_none_was_ever_set_there_is_nothing_to_ask(fleet):
    assert fleet.ask(outbox.standing) is None


class _Killed(BaseException):
    """The process ends here."""


def test_a_collector_killed_after_the_answer_leaves_it_to_be_told_again_by_the_same_id(
    told, fleet, receiver, monkeypatch
):
    def die(*_):
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(messenger.outbox, "delivered", die)
        with pytest.raises(_Killed):
            told.once()
    after = telling(fleet, receiver, "another")
    after.once()
    assert len(receiver.seen) == 1, "the role is not free yet"
    fleet.now += LEASE_US + SECOND
    after.once()
    assert [name for _, name in receiver.events] == [f"{KEY}/revision/3"] * 2
    after.once()
    assert len(receiver.seen) == 2


def test_a_collector_killed_between_decision_and_outbox_loses_nothing(told, fleet, receiver, monkeypatch):
    def die(*_, **__):
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(messenger.outbox, "put", die)
        with pytest.raises(_Killed):
            told.once()
    assert len(fleet.rows("webhook_events")) == 1
    telling(fleet, receiver).once()
    assert receiver.events == [("ramp_step", f"{KEY}/revision/3")]


def test_no_transaction_is_open_while_the_receiver_is_waited_for(told, fleet, receiver, monkeypatch):
    real, wrote = send.send, []

    def slow(*arguments):
        with fleet.db.write() as conn:
            wrote.append(conn.in_transaction())
        return real(*arguments)

    monkeypatch.setattr(messenger, "send", slow)
    told.once()
    assert wrote == [True]
    assert len(receiver.seen) == 1


@pytest.mark.parametrize(
    "url", ["ftp://h/x", "http://", "http://user:secret@h/x", "http://h:0/", "http://h/ x", "h.example", "http://[1/"]
)
def test_a_wrong_address_is_refused_and_not_repeated(url):
    with pytest.raises(UsageError) as refused:
        send.Target(url, SECRET)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("secret", ["", "short", "whsec_c2hvcnQ=", "whsec_not base64 at all, and long enough"])
def test_a_secret_that_could_be_guessed_is_refused(secret):
    with pytest.raises(UsageError, match="16 bytes at least"):
        send.Target("http://127.0.0.1/", secret)


def test_a_secret_of_the_specification_is_base64():
    assert send.Target("http://h/", "whsec_" + base64.b64encode(b"0" * 24).decode()).key == b"0" * 24
    assert SECRET not in repr(send.Target("http://h/", SECRET))


def test_nothing_is_stored_of_the_secret(told, fleet, receiver):
    told.once()
    assert SECRET not in str(fleet.rows(webhook_events.name))


def test_a_collector_with_a_webhook_tells_what_its_ramp_does(db, receiver):
    settings = Settings(webhook=send.Target(receiver.url, SECRET))
    with listening(create_app(settings, db)) as url, httpx.Client(base_url=url, trust_env=False) as http:
        made = {"key": KEY, "feature": "cross_layer_blocks", **WHO}
        assert http.post("/api/v1/flags", json=made).status_code == 201
        _until(lambda: _begun(db))
        plan = {"steps": [{"count": 1, "hold_s": 0}], **WHO}
        assert http.put(f"/api/v1/flags/{KEY}/ramp", json=plan).status_code == 200
        _until(lambda: http.get("/api/v1/webhook").json()["webhook"]["delivered"])
        assert 'kvflags_webhook_events{state="delivered"} 1.0' in http.get("/metrics").text
    assert receiver.events == [("ramp_step", f"{KEY}/revision/3")]


def _begun(db):
    with db.read() as conn:
        return outbox.begun(conn)


def _until(holds):
    """Bounded, and long enough for a busy machine."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_receiver_of_the_guide_takes_what_is_sent_and_nothing_else(told, fleet, receiver):
    page = (Path(__file__).parents[3] / "docs" / "webhook.md").read_text()
    [code] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names = {}
    exec(code, names)
    fleet.now = time.time_ns() // 1000
    told.once()
    headers, _ = receiver.seen[0]
    assert names["verified"](SECRET, headers, headers["raw"])
    assert not names["verified"](SECRET, headers, headers["raw"] + b" ")
    assert not names["verified"]("another", headers, headers["raw"])
    late = headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) - 301)}
    assert not names["verified"](SECRET, late, headers["raw"])
