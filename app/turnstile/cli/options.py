"""Options as classes: a command that has a parameter of such a class has all of its options."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import typer

from turnstile.cli.cluster import explained


def command(app: typer.Typer, name: str) -> Callable[[Callable[..., None]], None]:
    """Add a function as a command. Each parameter whose type is a class of options (a dataclass) becomes those options,
    and an error of Turnstile ends the command with one sentence. A parameter of the function takes the place of an
    option of the same name."""

    def add(function: Callable[..., None]) -> None:
        sets: dict[str, Any] = {}
        own: list[Parameter] = []
        for parameter in signature(function, eval_str=True).parameters.values():
            if is_dataclass(parameter.annotation):
                sets[parameter.name] = parameter.annotation
            else:
                own.append(parameter)
        taken = {parameter.name for parameter in own}
        added = {given: [each for each in fields(options) if each.name not in taken] for given, options in sets.items()}
        for given, options in sets.items():
            hints = get_type_hints(options, include_extras=True)
            own += [
                Parameter(each.name, Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
                for each in added[given]
            ]

        @wraps(function)
        def called(**given: Any) -> None:
            for parameter, options in sets.items():
                given[parameter] = options(**{each.name: given.pop(each.name) for each in added[parameter]})
            with explained():
                function(**given)

        del called.__wrapped__  # its signature is not that of the command
        called.__signature__ = Signature(own)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
        app.command(name)(called)

    return add
