"""Rules by which running jobs are mapped to LocalQueues: the flags and the file of Kueue's importer. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import yaml

from turnstile.api import yamltext
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Object

FILE: Final = "--queuemapping-file"
PAIRS: Final = "--queuemapping"
_FORM: Final = "give a list of rules, each with `match` and `toLocalQueue` or `skip: true`"


class Match(Object, forbid_unknown_fields=True):
    """The conditions of a rule; an absent one matches every job."""

    priority_class_name: str = ""
    labels: dict[str, str] = {}
    resources: list[str] = []
    """Resources that the job requests."""


class Rule(Object, forbid_unknown_fields=True):
    """Jobs that match go to a LocalQueue, or are left alone."""

    match: Match = msgspec.field(default_factory=Match)
    to_local_queue: str = ""
    skip: bool = False


class Mapped(NamedTuple):
    """The answer for one job."""

    queue: str = ""
    skip: bool = False


class QueueMapping:
    """Rules in their order: the first that matches decides."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    @classmethod
    def parse(cls, text: str, source: str) -> "QueueMapping":
        """The rules of a mapping file. Raises InvalidValue."""
        try:
            found = yamltext.documents(text)
            rules = msgspec.convert(found[0] if len(found) == 1 else found, list[Rule])
        except yamltext.Aliased as error:
            raise InvalidValue(FILE, source, str(error)) from None
        except yaml.YAMLError as error:
            raise InvalidValue(FILE, source, f"is not YAML: {' '.join(str(error).split())}") from None
        except msgspec.ValidationError as error:
            raise InvalidValue(FILE, source, f"{error}: {_FORM}") from None
        for number, rule in enumerate(rules, 1):
            if rule.skip == bool(rule.to_local_queue):
                raise InvalidValue(FILE, source, f"rule {number} needs either `toLocalQueue` or `skip: true`")
        return cls(rules)

    @classmethod
    def of_pairs(cls, label: str, pairs: Iterable[str]) -> "QueueMapping":
        """The rules of `--queuelabel` and `--queuemapping`. Raises InvalidValue."""
        rules: list[Rule] = []
        for pair in (each for text in pairs for each in text.split(",") if each):
            value, equals, queue = pair.partition("=")
            if not (equals and queue):
                raise InvalidValue(PAIRS, pair, "give LABEL-VALUE=LOCAL-QUEUE, several with commas between them")
            rules.append(Rule(match=Match(labels={label: value}), to_local_queue=queue))
        return cls(rules)

    @classmethod
    def to(cls, queue: str) -> "QueueMapping":
        """All jobs to one LocalQueue."""
        return cls([Rule(to_local_queue=queue)])

    def of(self, labels: Mapping[str, str], priority_class: str, requested: Collection[str]) -> Mapped | None:
        """The queue of a job with these labels, PriorityClass and resources; None if no rule matches."""
        for rule in self.rules:
            wanted = rule.match
            if wanted.priority_class_name and wanted.priority_class_name != priority_class:
                continue
            if any(labels.get(key, "") != value for key, value in wanted.labels.items()):
                continue
            if all(each in requested for each in wanted.resources):
                return Mapped(rule.to_local_queue, rule.skip)
        return None
