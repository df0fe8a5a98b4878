"""`python -m tests.conformance [SUITES...]`: a table suite by suite, recorded calls that no adapter knows, then
`N passed, N failed, N skipped`."""

import sys
from collections import Counter

from tests.conformance import cases, registry, unread


def main(patterns: list[str]) -> int:
    """Exit status: 0 if nothing failed."""
    verbose = "-v" in patterns
    patterns = [pattern for pattern in patterns if pattern != "-v"]
    found = cases.suites(tuple(patterns) or ("*",))
    if not found:
        print(f"no recorded cases in {cases.directory()}: set CASES_DIR to their directory")
        return 0
    rules = cases.exclusions()
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    watch = unread.Watch()
    print(f"{'suite':84} {'passed':>7} {'failed':>7} {'n/a':>7}")
    for path in found:
        score: Counter[str] = Counter()
        failures = []
        for case in cases.read(path):
            why = cases.excluded(case, rules)
            if why is None and registry.adapter(case.suite) is None:
                why = "no adapter yet"
            if why is not None:
                score["skipped"] += 1
                reasons[why] += 1
                continue
            replayed = unread.adapter_of(case.suite) in unread.REPLAYS
            differences = watch.differences(case) if replayed else registry.differences(case)
            if differences is None:
                score["skipped"] += 1
                reasons[registry.NO_COUNTERPART] += 1
                continue
            score["failed" if differences else "passed"] += 1
            if differences:
                failures.append((case, differences))
        print(f"{path.stem:84} {score['passed']:7} {score['failed']:7} {score['skipped']:7}")
        for case, differences in failures:
            print(f"    FAILED {case.name}")
            for text in differences[: None if verbose else 4]:
                print(f"        {text}")
        total.update(score)
    for why, count in sorted(reasons.items()):
        print(f"not applicable, {why}: {count}")
    for text in unread.unjudged(watch.unread()):
        print(f"passed over, and nobody knows why: {text}")
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
