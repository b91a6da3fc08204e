# SPDX-License-Identifier: Apache-2.0
"""`kill -9` at random moments under load: every acknowledged span exactly once, roll-ups equal raw, no person needed.

KVFLAGS_SOAK_KILLS sets how often (`make soak`: 50), KVFLAGS_SOAK_SEED when.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import time

_KILLS = int(os.environ.get("KVFLAGS_SOAK_KILLS", "3"))
_SEED = int(os.environ.get("KVFLAGS_SOAK_SEED", "1"))


def test_killed_at_random_it_keeps_what_it_acknowledged(serve, load, url, stored, rolled_up):
    moments = random.Random(_SEED)
    for _ in range(_KILLS):
        with serve(url) as (process, address):
            load.address = address
            load.grows(1)
            time.sleep(moments.uniform(0, 1))
            process.kill()
            assert process.wait() == -signal.SIGKILL
    with serve(url) as (process, load.address):
        load.grows(1)
        load.stop()
        _until_rolled_up(rolled_up)
        process.terminate()
        assert process.wait(60) == 0
    found = stored()
    assert len(found) == len(set(found))
    assert load.acknowledged <= set(found)
    # A span is a transfer here, so the roll-ups count as many as there are.
    assert rolled_up() == (len(found), 0)


def _until_rolled_up(rolled_up) -> None:
    end = time.monotonic() + 60
    while rolled_up()[1]:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_told_to_stop_under_load_it_answers_commits_and_ends(serve, load, url, stored):
    with serve(url) as (process, load.address):
        load.grows(100)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        # 5 s of draining at most, and the closing of the threads.
        assert time.monotonic() - began < 15
    load.stop()
    found = stored()
    assert load.acknowledged <= set(found)
    assert len(found) == len(set(found))


def test_a_second_signal_ends_at_once(serve, url):
    with serve(url, "--drain", "60s") as (process, address):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            # A body that never ends is being answered, so the drain would take its whole time.
            slow.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-protobuf\r\n")
            slow.sendall(b"Content-Length: 10\r\n\r\nx")
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(5) == 128 + signal.SIGTERM
