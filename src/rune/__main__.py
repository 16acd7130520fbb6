"""`python -m rune` is the command `rune`."""

import sys

from rune.cli import main

sys.exit(main())
