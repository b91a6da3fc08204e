# SPDX-License-Identifier: Apache-2.0
"""Every request ends in exactly one record: what vLLM's worker does, and what we make of it."""

import threading
import time
from types import SimpleNamespace

import pytest

from kvflags.connector import observe
from kvflags.connector.observe import Observer
from kvflags.telemetry.records import Records, Transfer


def test_a_good_transfer(watched):
    before = time.time_ns()
    watched.start(blocks=5)
    watched.worker.poll()
    assert watched.taken() == []
    watched.finish()
    (transfer,) = watched.taken()
    assert transfer == Transfer(
        "r", "engine-p", "req-p", 5, transfer.start_ns, transfer.end_ns, bytes=100, descriptors=3, post_ns=7_500
    )
    assert before <= transfer.start_ns <= transfer.end_ns <= time.time_ns() + 1_000_000
    assert (watched.observer.ok, watched.observer.errors) == (1, 0)
    assert watched.agent.released == watched.agent.posted


def test_handles_of_one_request_are_added_up(two_ranks):
    two_ranks.start()
    first, second = two_ranks.agent.posted
    two_ranks.agent.states[first] = "DONE"
    two_ranks.worker.poll()
    assert two_ranks.taken() == []
    two_ranks.agent.states[second] = "DONE"
    two_ranks.worker.poll()
    (transfer,) = two_ranks.taken()
    assert (transfer.bytes, transfer.descriptors, transfer.post_ns, transfer.blocks) == (200, 6, 15_000, 5)


def test_requests_that_read_the_same_remote_request_are_kept_apart(watched):
    watched.start("r-0", request="shared")
    watched.start("r-1", request="shared")
    watched.finish()
    assert watched.ended() == [("r-0", ""), ("r-1", "")]


def test_time_runs_from_the_first_post_to_the_last_done(two_ranks, monkeypatch):
    clock = iter(range(1_000, 100_000, 10))
    monkeypatch.setattr(observe.time, "monotonic_ns", lambda: next(clock))
    monkeypatch.setattr(observe.time, "time_ns", lambda: 5_000_000)
    two_ranks.start()  # 1000 seen, 1010 and 1020 posted
    two_ranks.finish()  # 1030 and 1040 done
    (transfer,) = two_ranks.taken()
    assert (transfer.start_ns, transfer.end_ns) == (5_000_000, 5_000_030)


def test_a_step_of_the_wall_clock_makes_no_negative_duration(watched, monkeypatch):
    watched.start()
    monkeypatch.setattr(observe.time, "time_ns", lambda: 0)
    watched.finish()
    (transfer,) = watched.taken()
    assert 0 <= transfer.end_ns - transfer.start_ns < 1_000_000_000


def test_blocks_that_are_here_already_are_no_transfer(watched):
    watched.start(blocks=0)
    watched.finish()
    watched.observer.close()
    assert watched.taken() == []


def test_a_rank_whose_share_is_empty_makes_no_transfer(watched):
    # Decode context parallelism: there are blocks, but none of them is this rank's.
    watched.worker.ranks = 0
    watched.start()
    watched.observer.close()
    assert watched.taken() == []


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("make_prepped_xfer", "transfer_setup_failed"),
        ("transfer", "transfer_setup_failed"),
        ("check_xfer_state", "transfer_exception"),
        ("get_xfer_telemetry", "transfer_exception"),
        ("release_xfer_handle", "transfer_exception"),
    ],
)
def test_a_call_to_nixl_that_raises(watched, call, kind):
    watched.agent.fail = {call}
    watched.start()
    for _ in range(3):
        watched.finish()
    assert watched.ended() == [("r", kind)]
    assert (watched.observer.ok, watched.observer.errors) == (0, 1)
    assert watched.worker.logged[0] == (kind, "r")


def test_a_state_that_is_an_error(watched):
    watched.start()
    watched.finish("ERR")
    (transfer,) = watched.taken()
    assert (transfer.kind, transfer.blocks, transfer.remote_engine, transfer.bytes) == (
        "transfer_failed", 5, "engine-p", 0,
    )  # fmt: skip


def test_a_handle_that_cannot_be_released_fails_in_every_step_and_counts_once(watched):
    watched.start()
    watched.agent.fail = {"release_xfer_handle"}
    for _ in range(4):
        watched.finish("ERR")
    assert len(watched.worker.logged) == 8
    assert watched.ended() == [("r", "transfer_failed")]


def test_the_second_of_two_handles_fails_to_post(two_ranks):
    posts = []

    def once(handle, notif_msg=b""):
        posts.append(handle)
        if len(posts) == 2:
            raise RuntimeError("no more")
        return "PROC"

    two_ranks.agent.transfer = once
    two_ranks.start()
    two_ranks.finish()
    assert two_ranks.ended() == [("r", "transfer_setup_failed")]


def test_one_of_two_handles_fails_after_the_other_was_done(two_ranks):
    two_ranks.start()
    first, second = two_ranks.agent.states
    two_ranks.agent.states.update({first: "DONE", second: "ERR"})
    two_ranks.worker.poll()
    (transfer,) = two_ranks.taken()
    assert (transfer.kind, transfer.bytes) == ("transfer_failed", 100)


def handshake_fails(watched, text, request="r", failure="handshake_failed"):
    meta = watched.worker._recving_metadata.get(request)
    watched.worker._log_failure(failure_type=failure, req_id=request, error=RuntimeError(text), meta=meta)


def test_waits_for_the_handshake_and_then_reads(watched):
    watched.worker._remote_agents = {}
    watched.start()
    watched.finish()
    assert watched.taken() == []
    watched.worker._remote_agents = {"engine-p": {}}
    watched.worker._read_blocks_for_req("r", watched.worker._recving_metadata["r"])
    watched.finish()
    assert watched.ended() == [("r", "")]


@pytest.mark.parametrize(
    ("text", "mismatch"),
    [
        ("Heterogeneous TP expects same kv_cache_layout (local LBHNC, remote BHLNC).", True),
        ("NIXL compatibility hash mismatch. Local: a Remote: b", False),
        ("connection refused", False),
    ],
)
def test_a_handshake_that_fails(watched, text, mismatch):
    watched.worker._remote_agents = {}
    watched.start()
    # Once for the handshake, which has no request, and once for each request that waited for it.
    watched.worker._log_failure(failure_type="handshake_setup_failed", req_id=None, error=RuntimeError(text))
    handshake_fails(watched, text)
    (transfer,) = watched.taken()
    assert (transfer.kind, transfer.layout_mismatch) == ("handshake_failed", mismatch)
    assert (transfer.remote_engine, transfer.remote_request, transfer.blocks) == ("engine-p", "req-p", 5)


def test_a_failure_of_a_request_that_we_never_saw_is_counted_all_the_same(watched):
    handshake_fails(watched, "no route", request="d-side", failure="push_reg_handshake_failed")
    handshake_fails(watched, "no route", request="d-side", failure="push_reg_handshake_failed")
    assert watched.ended() == [("d-side", "push_reg_handshake_failed")]


def test_the_metadata_of_a_waiting_request_is_found_when_vllm_does_not_pass_it(watched):
    watched.worker._recving_metadata["r"] = SimpleNamespace(
        local_block_ids=([1, 2],), remote=SimpleNamespace(engine_id="p2", request_id="x")
    )
    watched.worker._log_failure(failure_type="push_reg_notif_failed", req_id="r", error=None)
    (transfer,) = watched.taken()
    assert (transfer.remote_engine, transfer.remote_request, transfer.blocks) == ("p2", "x", 2)


def test_a_kind_that_this_version_does_not_know_keeps_its_name(watched):
    watched.start()
    watched.worker._log_failure(failure_type="gremlins", req_id="r")
    (transfer,) = watched.taken()
    assert (transfer.kind, transfer.detail) == ("other", "gremlins")


def test_given_up_without_a_named_failure(watched):
    watched.worker.invalid = {"engine-p"}
    watched.start()
    (transfer,) = watched.taken()
    assert (transfer.kind, transfer.detail) == ("other", "declined")


def test_a_notification_that_fails_makes_an_error_of_the_transfer_it_belongs_to(watched):
    watched.start()
    watched.worker._log_failure(failure_type="notification_failed", req_id="r")
    assert watched.taken() == []
    watched.finish()
    (transfer,) = watched.taken()
    assert (transfer.kind, transfer.bytes) == ("notification_failed", 100)


def test_a_notification_that_fails_where_nothing_is_moved(watched):
    watched.agent.fail = {"send_notif"}
    watched.start(blocks=0)
    (transfer,) = watched.taken()
    assert (transfer.request, transfer.kind, transfer.blocks) == ("r", "notification_failed", 0)


def test_what_is_under_way_ends_with_the_engine(two_ranks):
    two_ranks.start("done")
    two_ranks.finish()
    two_ranks.start("half")
    two_ranks.agent.states[two_ranks.agent.posted[-1]] = "DONE"
    two_ranks.worker.poll()
    two_ranks.worker._remote_agents = {}
    two_ranks.start("greeting")
    two_ranks.worker.shutdown()
    two_ranks.observer.close()
    assert two_ranks.ended() == [("done", ""), ("half", "shutdown"), ("greeting", "shutdown")]
    two_ranks.observer.close()
    assert two_ranks.taken() == []


def test_a_request_id_that_comes_again_is_another_transfer(watched):
    watched.start()
    watched.finish("ERR")
    watched.start()
    watched.finish()
    assert watched.ended() == [("r", "transfer_failed"), ("r", "")]


def test_remembers_a_bounded_number_of_ended_requests(watched, monkeypatch):
    monkeypatch.setattr(observe, "_REMEMBERED", 10)
    for n in range(50):
        watched.start(f"r{n}")
        watched.finish()
    assert len(watched.taken()) == 50
    assert len(watched.observer._ended) == 10
    assert not watched.observer._live
    assert not watched.observer._handles


def test_a_release_that_posts_elsewhere_is_seen_by_its_notification():
    records = Records()
    observer = Observer(records)
    handle = object()
    observer.prepared(handle, b"req-p:1")
    observer.posted(handle, 1_000, time.monotonic_ns())
    observer.done(handle)
    observer.measured(handle, None)
    observer.released(handle)
    (transfer,) = records.take(9)
    assert (transfer.request, transfer.remote_request, transfer.kind) == ("req-p", "req-p", "")


def test_two_threads_that_end_one_request_make_one_record():
    for _ in range(200):
        records = Records()
        observer = Observer(records)
        gate = threading.Barrier(4)

        def fail(observer=observer, gate=gate):
            gate.wait()
            observer.failed("handshake_failed", "r")

        threads = [threading.Thread(target=fail) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(records) == observer.errors == 1


def test_a_writer_thread_posts_while_the_engine_polls():
    """Push: WRITEs are posted by a thread of vLLM's own, and polled in the step loop."""
    records, ready = Records(), []
    observer = Observer(records)
    meta = SimpleNamespace(local_block_ids=([1],), remote=SimpleNamespace(engine_id="d", request_id="x"))

    def write():
        for n in range(500):
            observer.enter(f"r{n}", meta)
            handle = object()
            observer.prepared(handle, b"x:1")
            observer.posted(handle, time.time_ns(), time.monotonic_ns())
            observer.leave()
            ready.append(handle)

    writer = threading.Thread(target=write)
    writer.start()
    finished = 0
    while finished < 500:
        for handle in ready[finished:]:
            observer.done(handle)
            observer.released(handle)
            finished += 1
    writer.join()
    ended = records.take(1_000)
    assert [transfer.request for transfer in ended] == [f"r{n}" for n in range(500)]
    assert {transfer.remote_engine for transfer in ended} == {"d"}
