# SPDX-License-Identifier: Apache-2.0
"""Tables and the way to them. Imports nothing of rollout, ingest or api; they stand on this package."""
