# SPDX-License-Identifier: Apache-2.0
import pytest

from kvflags.flags import default_steps


@pytest.mark.parametrize(
    ("eligible", "says"),
    [
        (0, ["1 deployment"]),
        (1, ["1 deployment"]),
        (4, ["1 deployment", "2 deployments"]),
        (9, ["1 deployment", "2 deployments", "4 deployments"]),
        (199, ["1 deployment", "2 deployments", "5 deployments", "99 deployments"]),
        (200, ["1%", "5%", "25%", "50%"]),
    ],
)
def test_the_default_steps_suit_the_fleet(eligible, says):
    assert [str(step.target) for step in default_steps(eligible)] == says
