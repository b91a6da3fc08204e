# SPDX-License-Identifier: Apache-2.0
"""How an engine comes to its decision, and how that travels through its processes. Imports `flags` and `features`."""
