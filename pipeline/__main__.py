"""``python -m pipeline``, in a checkout: the program itself is `bayes_at_n`."""

import sys

from bayes_at_n.pipeline.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
