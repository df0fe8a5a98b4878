"""Whatever the labels of pods say: no domain gets more pods than it has places, and no place stays empty for a pod."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.controllers.test_ungater import INDEX, RACK
from tests.unit.controllers.worlds import decode
from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.topology import TopologyAssignment, TopologyRequest
from turnstile.api.topologyassignment import Domain, encode
from turnstile.api.topologyassignment import decode as domains_of
from turnstile.controllers.topology.ranks import Places, Values
from turnstile.engine.pace import finish
from turnstile.jobs.pods import node_selector

RACKS = ("r1", "r2", "r3")


@st.composite
def assignments(draw: st.DrawFn) -> TopologyAssignment:
    """Racks with some places each, a rack perhaps twice."""
    racks = draw(st.lists(st.sampled_from(RACKS), min_size=1, max_size=4))
    return encode([RACK], [Domain((rack,), draw(st.integers(1, 3))) for rack in racks])


@st.composite
def members(draw: st.DrawFn) -> list[Pod]:
    """Pods with ranks that are right, wrong or missing; gated, or in a rack."""
    found = []
    for number in range(draw(st.integers(0, 8))):
        rank = draw(st.sampled_from([str(number), str(number), "0", "-1", "99", "x", ""]))
        gated = draw(st.booleans()) or draw(st.booleans())
        spec: dict[str, Any] = {"schedulingGates": [{"name": names.TOPOLOGY_GATE}]} if gated else {}
        if not gated:
            spec["nodeSelector"] = {RACK: draw(st.sampled_from([*RACKS, "elsewhere"]))}
        meta = {"name": f"p{number}", "namespace": "ns", "uid": f"p{number}", "labels": {INDEX: rank}}
        found.append(decode(Pod, {"metadata": meta, "spec": spec}))
    return found


def filled(assignment: TopologyAssignment, pods: list[Pod], kept: dict[str, Values]) -> dict[str, Values]:
    """The domain of each gated pod that gets one."""
    count = sum(each.pod_counts.universal or sum(each.pod_counts.individual) for each in assignment.slices)
    request = TopologyRequest(pod_index_label=INDEX)
    return finish(Places(assignment, pods).fill(request, count=count, first=0, kept=kept))


def places(assignment: TopologyAssignment) -> Counter[str]:
    """The places of each rack."""
    found: Counter[str] = Counter()
    for each in expanded(assignment):
        found[each.values[0]] += each.pods
    return found


def expanded(assignment: TopologyAssignment) -> list[Domain]:
    """The domains of an assignment."""
    return list(domains_of(assignment))


def occupied(pods: list[Pod]) -> Counter[str]:
    """The pods that are in each rack."""
    return Counter(rack for each in pods if (rack := node_selector(each).get(RACK)))


@settings(max_examples=200, deadline=None)
@given(assignment=assignments(), pods=members(), data=st.data())
def test_places_are_filled_and_never_overfilled(assignment: TopologyAssignment, pods: list[Pod], data: Any) -> None:
    """A pod whose write is in doubt keeps its domain, if there is such a place."""
    gated = [each.metadata.uid for each in pods if names.TOPOLOGY_GATE in str(bytes(each.spec))]
    kept = {uid: (data.draw(st.sampled_from(RACKS)),) for uid in gated if data.draw(st.booleans())}
    found = filled(assignment, pods, kept)
    have, before = places(assignment), occupied(pods)
    after = before + Counter(values[0] for values in found.values())
    for rack in RACKS:
        assert after[rack] <= max(have[rack], before[rack])
    free = sum(max(have[rack] - before[rack], 0) for rack in have)
    ranked = len({each.metadata.labels[INDEX] for each in pods}) == len(pods)
    if not ranked:
        assert len(found) == min(free, len(gated))
    again = filled(assignment, pods, found)
    assert again == found
