"""Programs that do what Turnstile does, from their own Go modules: for moving over and back, and for the benches.

A folder each, as for the operators, with whom they share all but the place: go.mod and go.sum pin the peer, and it runs
by `RunningOperator`. A peer and Turnstile never manage jobs at the same time.
"""

from testbed.peers.kueue import KUEUE, Peer, configured

__all__ = ["KUEUE", "Peer", "configured"]
