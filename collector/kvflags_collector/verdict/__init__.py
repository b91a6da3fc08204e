# SPDX-License-Identifier: Apache-2.0
"""What the evidence says: pure functions, which the store fills and a simulator can feed."""
