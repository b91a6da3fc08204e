# SPDX-License-Identifier: Apache-2.0
"""`kill -9` at random moments under load: every acknowledged span exactly once, and no person needed to start again.

KVFLAGS_SOAK_KILLS sets how often (`make soak`: 50), KVFLAGS_SOAK_SEED when.
"""

from __future__ import annotations

import os
import random
import signal
import time

_KILLS = int(os.environ.get("KVFLAGS_SOAK_KILLS", "3"))
_SEED = int(os.environ.get("KVFLAGS_SOAK_SEED", "1"))


def test_killed_at_random_it_keeps_what_it_acknowledged(serve, load, url, stored):
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
        process.terminate()
        assert process.wait(60) == 0
    found = stored()
    assert len(found) == len(set(found))
    assert load.acknowledged <= set(found)
