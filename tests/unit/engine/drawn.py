"""Quotas, policies and pod sets that Hypothesis draws."""

from hypothesis import strategies as st

from tests.unit.engine import told

limit = st.none() | st.integers(0, 4)
quota = st.tuples(st.integers(0, 6), limit, limit)
few = st.tuples(st.integers(0, 2), limit, limit)
priorities = st.integers(0, 2)
seconds = st.integers(0, 8)
weights = st.sampled_from(["1", "1", "0", "2"])
borrowing = st.one_of(
    st.just({"policy": "Never"}),
    st.just({"policy": "LowerPriority"}),
    st.builds(
        lambda threshold: {"policy": "LowerPriority", "maxPriorityThreshold": threshold}, threshold=st.integers(-1, 1)
    ),
)
policies = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any"]),
        "borrowWithinCohort": borrowing,
    }
)
next_flavor = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
fungibility = st.one_of(
    st.fixed_dictionaries(
        {
            "whenCanBorrow": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
            "whenCanPreempt": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
        }
    ),
    st.sampled_from(
        [{**next_flavor, "preference": how} for how in ("BorrowingOverPreemption", "PreemptionOverBorrowing")]
    ),
)
specs = st.fixed_dictionaries(
    {
        "preemption": policies,
        "flavorFungibility": fungibility,
        "queueingStrategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
        "stopPolicy": st.sampled_from(["None", "None", "None", "None", "Hold", "HoldAndDrain"]),
        "fairSharing": st.builds(lambda weight: {"weight": weight}, weight=weights),
    },
    optional={
        "admissionScope": st.just({"admissionMode": "UsageBasedAdmissionFairSharing"}),
        "admissionChecksStrategy": st.sampled_from(
            [{"admissionChecks": [{"name": told.CHECK, **flavors}]} for flavors in ({}, {"onFlavors": ["y"]})]
        ),
    },
)
resource_groups = st.builds(told.groups, quota, quota, quota)
pod_set = st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(1, 3), st.none() | st.just(1))
pod_sets = st.lists(pod_set, min_size=1, max_size=2).map(
    # at most one pod set may be cut short
    lambda sets: [(*item[:3], item[3] if index == 0 else None) for index, item in enumerate(sets)]
)
strategies = st.sampled_from(
    [
        ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
        ("LessThanOrEqualToFinalShare",),
        ("LessThanInitialShare",),
    ]
)
