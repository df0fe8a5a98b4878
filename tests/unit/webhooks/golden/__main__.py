"""Writes the reviews of every kind with their answers beside this file: `python -m tests.unit.webhooks.golden`,
which `make generate` does too.

Read what changed before it is committed: the files are what is expected from then on.
"""

import sys

from tests.unit.webhooks.golden.cases import file_of, lines, samples, text


def main() -> int:
    """Entry."""
    written = samples()
    for name, sample in written.items():
        file_of(name).write_text(text(lines(sample)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
