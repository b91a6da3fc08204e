# SPDX-License-Identifier: Apache-2.0
"""The proxy, the marks and the funnel change nothing of what passes through them."""

import pytest

from kvflags.connector import guard
from kvflags.connector.agent import AgentProxy, funnel, marked
from kvflags.connector.observe import Observer
from kvflags.telemetry.records import Records


class BrokenObserver(Observer):
    """Ours, failing wherever it can."""

    def __init__(self):
        super().__init__(Records())
        self._handles = self._live = self._current = None


def test_results_are_the_agents_own(watched):
    proxy, agent = watched.worker.nixl_wrapper, watched.agent
    handle = proxy.make_prepped_xfer("READ", 1, [0], 2, [0], notif_msg=b"x:1")
    assert handle in agent.states
    assert proxy.transfer(handle) == "PROC"
    assert proxy.check_xfer_state(handle) == "PROC"
    assert proxy.get_xfer_telemetry(handle).totalBytes == 100
    assert proxy.release_xfer_handle(handle) is None
    assert proxy.get_new_notifs() == {"agent": [b"HB:"]}
    assert proxy.get_agent_metadata() == b"metadata"
    with pytest.raises(AttributeError):
        _ = proxy.nothing_of_the_kind


@pytest.mark.parametrize(
    "call", ["make_prepped_xfer", "transfer", "check_xfer_state", "get_xfer_telemetry", "release_xfer_handle"]
)
def test_exceptions_are_the_agents_own(watched, call):
    error = RuntimeError("from nixl")

    def fail(*args, **kwargs):
        raise error

    setattr(watched.agent, call, fail)
    proxy = AgentProxy(watched.agent, watched.observer)
    with pytest.raises(RuntimeError) as caught:
        getattr(proxy, call)("handle")
    assert caught.value is error


def test_what_is_called_in_every_step_is_not_looked_up(watched):
    assert vars(watched.worker.nixl_wrapper)["get_new_notifs"] == watched.agent.get_new_notifs
    assert "check_xfer_state" in vars(AgentProxy)


def test_an_observer_that_fails_everywhere_hurts_nobody(watched, monkeypatch, caplog):
    monkeypatch.delenv("KVFLAGS_STRICT")
    guard._failures.clear()
    broken = BrokenObserver()
    proxy = AgentProxy(watched.agent, broken)
    for _ in range(3):
        handle = proxy.make_prepped_xfer("READ", notif_msg=b"x:1")
        assert proxy.transfer(handle) == "PROC"
        watched.agent.states[handle] = "DONE"
        assert proxy.check_xfer_state(handle) == "DONE"
        assert proxy.get_xfer_telemetry(handle).descCount == 3
        proxy.release_xfer_handle(handle)
    assert marked(lambda req_id, meta: (req_id, meta), broken)("r", "m") == ("r", "m")
    assert funnel(lambda *args, **kwargs: "logged", broken, {})("transfer_failed", "r") == "logged"
    assert set(guard.failures().values()) == {1, 3}
    # Each place is said once, however often it fails.
    assert len(caplog.records) == len(guard.failures())
    guard._failures.clear()


def test_the_mark_is_taken_off_where_vllms_method_raises(watched):
    def post(req_id, meta):
        raise NotImplementedError("not for this topology")

    with pytest.raises(NotImplementedError, match="not for this topology"):
        marked(post, watched.observer)("r", watched.worker)
    assert "live" not in vars(watched.observer._current)


def test_keywords_reach_vllms_methods_as_they_were(watched):
    seen = []
    marked(lambda *args, **kwargs: seen.append((args, kwargs)), watched.observer)(req_id="r", meta=None, more=1)
    funnel(lambda *args, **kwargs: seen.append((args, kwargs)), watched.observer, {})(
        failure_type="transfer_failed", req_id=None, msg="m", dst_engine_id="d"
    )
    assert seen == [(("r", None), {"more": 1}), (("transfer_failed", None), {"msg": "m", "dst_engine_id": "d"})]
