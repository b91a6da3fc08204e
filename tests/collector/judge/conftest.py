# SPDX-License-Identifier: Apache-2.0
"""The fleet that most tests of the judge begin with."""

from __future__ import annotations

import pytest
from stored_fleet import Fleet


@pytest.fixture
def fleet(copied):
    """20 deployments, replaced after a ramp step, half of them treated; nothing measured yet."""
    return copied(Fleet)
