# SPDX-License-Identifier: Apache-2.0
"""Cross-layer blocks: one KV block holds all layers, so a transfer is a few large pieces, not thousands of small."""

from kvflags.features._feature import Feature
from kvflags.features.cross_layer_blocks.effective import effective
from kvflags.features.cross_layer_blocks.layouts import WAY_BACK, layout
from kvflags.features.cross_layer_blocks.rules import BACKENDS, MUST_MATCH, RULES
from kvflags.features.cross_layer_blocks.upstream import patch

__all__ = ["CROSS_LAYER_BLOCKS"]

CROSS_LAYER_BLOCKS = Feature(
    name="cross_layer_blocks",
    rules=RULES,
    must_match=MUST_MATCH,
    layout=layout,
    effective=effective,
    backends=BACKENDS,
    way_back=WAY_BACK,
    patch=patch,
)
