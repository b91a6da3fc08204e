# SPDX-License-Identifier: Apache-2.0
"""The array types of this package. One row an event or a deployment; NaN is "not known", never a zero."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Ints"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
