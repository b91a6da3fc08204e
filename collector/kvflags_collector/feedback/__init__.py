# SPDX-License-Identifier: Apache-2.0
"""What comes back from the fleet about a flag: `report` puts it together; the other modules read its parts."""
