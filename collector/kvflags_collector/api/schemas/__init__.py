# SPDX-License-Identifier: Apache-2.0
"""The shapes of requests, with their bounds. Unknown fields are ignored, so that either side may be newer."""
