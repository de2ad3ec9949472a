"""`python -m warpalign`: the command, without the console script on the PATH."""

import sys

from warpalign.cli import main

if __name__ == "__main__":
    sys.exit(main())
