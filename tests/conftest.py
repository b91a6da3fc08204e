# SPDX-License-Identifier: Apache-2.0
"""Each run draws the same cases, so that what fails, fails for the change at hand; `make soak` draws new ones."""

import os

from hypothesis import settings

settings.register_profile("same cases", derandomize=True)
settings.register_profile("new cases")
settings.load_profile("new cases" if os.environ.get("KVFLAGS_SOAK_CASES") else "same cases")
