# SPDX-License-Identifier: Apache-2.0
"""The engine behaviours that can be switched, one package each. Pure: imports `kvflags.flags` and nothing of vLLM.

The collector asks `eligible` and `must_match` when it pins; the engine asks `layout` and `effective` when it runs.
"""

from kvflags.features._feature import Feature
from kvflags.features.cross_layer_blocks import CROSS_LAYER_BLOCKS

__all__ = ["CROSS_LAYER_BLOCKS", "FEATURES", "Feature"]

FEATURES: dict[str, Feature] = {CROSS_LAYER_BLOCKS.name: CROSS_LAYER_BLOCKS}
