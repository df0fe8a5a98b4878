"""`python -m tests.conformance [SUITES...]`: a table suite by suite, cases that no adapter can read, recorded calls
that no adapter knows, then `N passed, N failed, N skipped`."""

import sys
from collections import Counter
from itertools import groupby

from tests.conformance import cases, registry, unread

NOT_READ = "not read: it holds what no adapter knows"


def main(patterns: list[str]) -> int:
    """Exit status: 0 if nothing failed."""
    verbose = "-v" in patterns
    patterns = [pattern for pattern in patterns if pattern != "-v"]
    found = cases.suites(tuple(patterns) or ("*",))
    if not found:
        print(cases.absent())
        return 0
    rules = cases.exclusions()
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    watch = unread.Watch()
    print(f"{'suite':84} {'passed':>7} {'failed':>7} {'n/a':>7}")
    unknown = []
    for suite, paths in groupby(found, key=lambda path: path.stem):
        score: Counter[str] = Counter()
        failures = []
        for case in (case for path in paths for case in cases.read(path)):
            why = cases.excluded(case, rules)
            if why is None and registry.adapter(case.suite) is None:
                why = "no adapter yet"
            if why is not None:
                score["skipped"] += 1
                reasons[why] += 1
                continue
            replayed = unread.adapter_of(case.suite) in unread.REPLAYS
            try:
                differences = watch.differences(case) if replayed else registry.differences(case)
            except cases.NotRead as error:
                score["skipped"] += 1
                reasons[NOT_READ] += 1
                unknown.append((case, error))
                continue
            if differences is None:
                score["skipped"] += 1
                reasons[registry.NO_COUNTERPART] += 1
                continue
            score["failed" if differences else "passed"] += 1
            if differences:
                failures.append((case, differences))
        print(f"{suite:84} {score['passed']:7} {score['failed']:7} {score['skipped']:7}")
        for case, differences in failures:
            print(f"    FAILED {case.name}")
            for text in differences[: None if verbose else 4]:
                print(f"        {text}")
        total.update(score)
    for why, count in sorted(reasons.items()):
        print(f"not applicable, {why}: {count}")
    for case, error in unknown:
        print(f"not read: {case.id}: {error}")
    for text in unread.unjudged(watch.unread()):
        print(f"passed over, and nobody knows why: {text}")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
