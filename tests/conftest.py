# SPDX-License-Identifier: Apache-2.0
"""Each run draws the same cases, so that what fails, fails for the change at hand; `make soak` draws new ones."""

import os
import signal

import httpx
import pytest
from hypothesis import settings

settings.register_profile("same cases", derandomize=True)
settings.register_profile("new cases")
settings.load_profile("new cases" if os.environ.get("KVFLAGS_SOAK_CASES") else "same cases")

# A shell's background job ignores SIGINT, and so would all that it starts; tests that interrupt would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A virtual machine stands still for 15 s now and then, which is no failure of what is tested. The library has its 5 s
# as a default of each function, so that object is what can be changed.
for _phase in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _phase, 60.0)


@pytest.fixture(scope="session", autouse=True)
def _own_folder_for_state(tmp_path_factory):
    """Collectors that tests start leave their admin's token here, never in what belongs to whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
