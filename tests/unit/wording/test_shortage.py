"""What is short is said with all amounts: accelerators first, then the scarcest, and who holds it."""

from turnstile.engine.naming import OTHER, OTHERS
from turnstile.wording.amounts import amount, figure
from turnstile.wording.shortage import Short, explained, headline

GI = 1 << 30


def test_who_holds_it() -> None:
    """The sentence that a data scientist reads first."""
    short = Short("on-demand", "cpu", 2000, 6000, 4000, holders=("team-a/simulation",))
    assert (
        headline([short]) == "Waits for 2 more CPUs on on-demand nodes: asks 6, 4 free; team-a/simulation holds them."
    )


def test_accelerators_come_first_and_nothing_is_left_out() -> None:
    """Not the first resource that was found."""
    memory = Short("a100", "memory", 576 * GI, 768 * GI, 192 * GI)
    cpu = Short("a100", "cpu", 48_000, 64_000, 16_000)
    gpus = Short("a100", "nvidia.com/gpu", 6, 8, 2)
    assert headline([memory, cpu, gpus]) == (
        "Waits for 6 more GPUs, 48 more CPUs and 576Gi more memory on a100 nodes: asks 8 GPUs, 2 free."
    )


def test_the_scarcest_of_the_others_comes_next() -> None:
    """Memory of which nine tenths are missing, before CPUs of which one tenth is."""
    cpu = Short("a", "cpu", 1000, 10_000, 9000)
    memory = Short("a", "memory", 9 * GI, 10 * GI, GI)
    assert headline([cpu, memory]).startswith(
        "Waits for 9Gi more memory and 1 more CPU on a nodes: asks 10Gi of memory"
    )


def test_the_most_hopeful_flavor_comes_first() -> None:
    """The one in which the smallest part is missing."""
    far, near = Short("far", "cpu", 5000, 6000, 1000), Short("near", "cpu", 1000, 6000, 5000)
    assert explained([far, near]) == (
        "Waits for 1 more CPU on near nodes: asks 6, 5 free. Waits for 5 more CPUs on far nodes: asks 6, 1 free."
    )


def test_holders_that_are_counted() -> None:
    """The verb goes with how many they are."""
    one, more = (Short("a", "cpu", 1000, 2000, 1000, holders=(name,)) for name in (OTHER, f"2 {OTHERS}"))
    assert headline([one]).endswith("; a Workload of another namespace holds it.")
    assert headline([more]).endswith("; 2 Workloads of other namespaces hold it.")


def test_an_amount_is_in_the_unit_that_was_written() -> None:
    """And exact: it can be written into a manifest."""
    assert figure("memory", 98208 << 20, like="96Gi") == "95.90625Gi"
    assert figure("memory", 1 << 20, like="96Gi") == "1Mi"
    assert figure("memory", 1536 << 20, like="2Gi") == "1.5Gi"
    assert amount("cpu", 3996) == "3.996 CPUs"
    assert amount("pods", 1) == "1 pod"
    assert amount("example.com/licence", 2) == "2 example.com/licence"
