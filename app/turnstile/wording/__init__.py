"""The words for decisions: turns the data of a decision, or Kueue's sentence in a condition, into sentences for people.

| call | gives |
|---|---|
| `amounts.amount(resource, value)` | an amount in words: `2 CPUs`, `4 GPUs`, `96Gi of memory` |
| `amounts.rank(resource)` | the place of a resource in a list: accelerators first |
| `causes.waiting(message)` | why a Workload waits, from the message of its condition QuotaReserved |
| `evictions.evicted(message)` | why it loses its quota, from the message of its condition Evicted |
| `inactivity.inactive(message)` | why a ClusterQueue admits nothing, from the message of its condition Active |
| `quotas.set_elsewhere(kind, name, set_by)` | that another controller sets a quota |
| `submission`, `standing` | why a job that is submitted can never start; what holds a Workload back |
| `shortage.headline(shorts)` | why a Workload waits, from the amounts that are short |
| `grammar.counted`, `listed`, `sentence` | `2 Workloads`; `a, b and c`; a capital letter and a full stop |
| `workloads.called(workload)` | the name under which its owner knows a Workload: the job's |

Each sentence begins with a capital letter and ends with a full stop. A condition keeps Kueue's sentence to the letter:
nothing here is written into one. Pure: imports `api` and `engine` only; never reads rights, and never decides. Callers
leave out what a reader may not see before they ask for words.
"""
