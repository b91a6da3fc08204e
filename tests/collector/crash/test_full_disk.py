# SPDX-License-Identifier: Apache-2.0
"""A disk that fills up at random moments under load: nothing acknowledged is lost, and with room again all goes on.

KVFLAGS_SOAK_KILLS sets how often (`make soak`: 50), KVFLAGS_SOAK_SEED with how little left.
"""

from __future__ import annotations


def test_sqlite_on_a_full_disk_refuses_and_goes_on_when_there_is_room(serve, load, disk, times, moments, finish):
    url = f"sqlite:///{disk.folder}/kvflags.db"
    with serve(url) as (process, load.address):
        for _ in times:
            load.grows(1)
            disk.fill(left=moments.randrange(1 << 16))
            load.is_refused()
            disk.clear()
        assert set(load.refused) == {503}
        finish(process, url)


def test_sqlite_killed_on_a_full_disk_starts_when_there_is_room(serve, load, disk, times, moments, kill, finish):
    url = f"sqlite:///{disk.folder}/kvflags.db"
    for _ in times:
        with serve(url) as (process, load.address):
            load.grows(1)
            disk.fill(left=moments.randrange(1 << 16))
            load.is_refused()
            kill(process)
        disk.clear()
    with serve(url) as (process, load.address):
        finish(process, url)
