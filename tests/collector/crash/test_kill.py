# SPDX-License-Identifier: Apache-2.0
"""`kill -9` at random moments under load: what was acknowledged is there once, roll-ups equal raw, no person needed.

Of the collector, and of PostgreSQL under it. KVFLAGS_SOAK_KILLS sets how often (`make soak`: 50), KVFLAGS_SOAK_SEED
when.
"""

from __future__ import annotations

import signal
import socket
import time


def test_killed_at_random_it_keeps_what_it_acknowledged(serve, load, url, times, moments, kill, finish):
    for _ in times:
        with serve(url) as (process, load.address):
            load.grows(1)
            time.sleep(moments.uniform(0, 1))
            kill(process)
    with serve(url) as (process, load.address):
        finish(process, url)


def test_postgresql_killed_at_random_keeps_it_too(serve, load, server, times, moments, finish):
    url = server.url("kvflags")
    with serve(url) as (process, load.address):
        for _ in times:
            load.grows(1)
            time.sleep(moments.uniform(0, 1))
            server.kill()
            time.sleep(moments.uniform(0, 0.5))
            server.start()
        finish(process, url)


def test_both_killed_at_once_start_again_by_themselves(serve, load, server, times, moments, kill, finish):
    url = server.url("kvflags")
    for _ in times:
        with serve(url) as (process, load.address):
            load.grows(1)
            time.sleep(moments.uniform(0, 1))
            server.kill()
            kill(process)
            server.start()
    with serve(url) as (process, load.address):
        finish(process, url)


def test_told_to_stop_under_load_it_answers_commits_and_ends(serve, load, kept, url):
    with serve(url) as (process, load.address):
        load.grows(100)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        # 5 s of draining at most, and the closing of the threads.
        assert time.monotonic() - began < 15
    load.stop()
    kept()


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
