# SPDX-License-Identifier: Apache-2.0
"""`python -m kvflags_cli`, for where the console script is not on the path."""

from kvflags_cli import main

if __name__ == "__main__":
    main()
