"""``python -m offsetlog``: the command line without the entry point."""

import sys

from offsetlog._cli import main

sys.exit(main())
