"""CEL expressions before they are evaluated: their grammar and names, not their types; the most that they may cost.

Finds typing errors when a file is read, and expressions of tenants that would take long. Source: the grammar of the CEL
language definition. Must never evaluate anything.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<string>[bB]?[rR][bB]?(?:\"\"\".*?\"\"\"|'''.*?'''|\"[^\"\n]*\"|'[^'\n]*')|[bB]?(?:\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'))"
    r"|(?P<number>0x[0-9a-fA-F]+u?|\d+\.\d+(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\d+u?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<sign>&&|\|\||[<>=!]=|[-+*/%<>!?:.,()\[\]{}]))",
    re.DOTALL,
)
_COMMENT: Final = re.compile(r"\s*//[^\n]*")
_INFIX: Final = frozenset(("&&", "||", "==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%"))
_MACROS: Final = frozenset(("all", "exists", "exists_one", "existsOne", "map", "filter", "sortBy", "transformList"))
_RESERVED: Final = frozenset(
    ("as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
     "namespace", "return", "var", "void", "while")
)  # fmt: skip
_TYPES: Final = frozenset(
    ("bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint", "optional", "cel",
     "google", "sets", "semver", "quantity", "ip", "cidr", "format", "math", "strings", "authorizer", "duration",
     "timestamp")
)  # fmt: skip
_DEPTH: Final = 60
_ITEMS: Final = 64
"""The most items or letters of a value that an expression does not write itself: a device has no more attributes."""
_GROWTH: Final = 256
"""Weight of a sum inside a macro, by which a value may double in each step."""
_REPEATED: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")


class Cost(NamedTuple):
    """The fault of an expression, empty if none is seen, and the most steps that its evaluation takes."""

    fault: str
    steps: int


def cost(expression: str, *, variables: Mapping[str, Collection[str]]) -> Cost:
    """The cost of an expression over variables that have fields."""
    try:
        parser = _Parser(_tokens(expression), variables)
        parser.expression(0)
        parser.end()
    except _Fault as error:
        return Cost(str(error), 0)
    return Cost("", parser.steps)


def entries(expression: str, variable: str, maps: Collection[str]) -> frozenset[tuple[str, str, str]] | None:
    """The entries `variable.map["first"].second` that an expression without fault reads of some maps of maps; None if
    it uses them in another way, such as to go through them."""
    tokens = _tokens(expression)
    found = set()
    for at, token in enumerate(tokens):
        if token != ("name", variable):
            continue
        rest = tokens[at + 1 : at + 8]
        if len(rest) < 2 or rest[0] != ("sign", ".") or rest[1][1] not in maps:
            if len(rest) < 2 or rest[0] != ("sign", ".") or (len(rest) > 2 and rest[2] == ("sign", "[")):
                return None
            continue
        entry = _entry(rest)
        if entry is None:
            return None
        found.add(entry)
    return frozenset(found)


def _entry(rest: list[tuple[str, str]]) -> tuple[str, str, str] | None:
    """The entry that `.map["first"].second`, or `.map["first"]["second"]`, reads."""
    if len(rest) < 7 - 1 or rest[2] != ("sign", "[") or rest[3][0] != "string" or rest[4] != ("sign", "]"):
        return None
    first, second = _plain(rest[3][1]), None
    if rest[5] == ("sign", ".") and len(rest) > 6 and rest[6][0] == "name":
        second = rest[6][1]
    elif rest[5] == ("sign", "[") and len(rest) > 6 and rest[6][0] == "string":
        second = _plain(rest[6][1])
    return (rest[1][1], first, second) if first is not None and second is not None else None


def _plain(literal: str) -> str | None:
    """The text of a string literal without escapes."""
    return literal[1:-1] if re.fullmatch(r"\"[^\"\\]*\"|'[^'\\]*'", literal) else None


class _Fault(Exception):
    pass


def fault(expression: str, *, variables: Mapping[str, Collection[str]]) -> str:
    """The fault of an expression; empty if none is seen. `variables` have fields; none for any."""
    return cost(expression, variables=variables).fault


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(text):
        if comment := _COMMENT.match(text, at):
            at = comment.end()
        elif token := _TOKEN.match(text, at):
            tokens.append((token.lastgroup or "", token[token.lastgroup or 0]))
            at = token.end()
        elif text[at:].strip():
            raise _Fault(f"Syntax error: token recognition error at: '{text[at:].strip()[:20]}'")
        else:
            break
    return tokens


class _Parser:
    """Recursive descent over tokens of (sort, text)."""

    def __init__(self, tokens: list[tuple[str, str]], variables: Mapping[str, Collection[str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._weight = 1
        self._items = _ITEMS
        """The most items of the value that was read last."""
        self.steps = 0
        self._fields = variables
        self._known = frozenset(variables)

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise _Fault(f"Syntax error: extraneous input '{self._peek()[1]}'")

    def expression(self, depth: int) -> None:
        if depth > _DEPTH:
            raise _Fault("expression nested too deeply")
        self._binary(depth)
        if self._take("?"):
            self._binary(depth)
            self._need(":")
            self.expression(depth + 1)

    def _binary(self, depth: int) -> None:
        self._unary(depth)
        while self._peek()[1] in _INFIX and self._peek()[0] != "string":
            if self._next() == "+" and self._weight > 1:
                self.steps += self._weight * _GROWTH
            self._unary(depth)

    def _unary(self, depth: int) -> None:
        while self._take("!") or self._take("-"):
            pass
        self._primary(depth)
        while True:
            if self._take("."):
                self._take("?")
                if self._peek()[0] != "name":
                    raise _Fault(f"Syntax error: mismatched input '{self._peek()[1] or '<EOF>'}' expecting a field")
                member, items = self._next(), self._items
                if self._take("("):
                    if member == "matches" and self._peek()[0] == "string":
                        self.steps += self._weight * _repeats(self._peek()[1])
                    weight = self._weight
                    if member in _MACROS:
                        self._weight *= max(2, items)
                    self._arguments(")", depth, scoped=member in _MACROS)
                    self._weight = weight
                self._items = _ITEMS
            elif self._take("["):
                self._take("?")
                self.expression(depth + 1)
                self._need("]")
            else:
                return

    def _primary(self, depth: int) -> None:
        sort, text = self._peek()
        self.steps += self._weight
        self._items = _ITEMS if sort != "string" else max(_ITEMS, len(text))
        if sort in ("string", "number"):
            self._at += 1
        elif sort == "name" and text != "in":
            self._at += 1
            if text in _RESERVED:
                raise _Fault(f"Syntax error: reserved identifier: {text}")
            if self._take("("):
                self._arguments(")", depth)
            elif text not in ("true", "false", "null") and text not in self._known | _TYPES:
                raise _Fault(f"undeclared reference to '{text}'")
            elif (fields := self._fields.get(text)) and self._peek() == ("sign", "."):
                sort, member = self._peek(1)
                if sort == "name" and member not in fields:
                    raise _Fault(f"undefined field '{member}'")
        elif self._take("("):
            self.expression(depth + 1)
            self._need(")")
        elif self._take("["):
            self._items = self._arguments("]", depth)
        elif self._take("{"):
            while not self._take("}"):
                self.expression(depth + 1)
                self._need(":")
                self.expression(depth + 1)
                if not self._take(","):
                    self._need("}")
                    break
        else:
            raise _Fault(f"Syntax error: mismatched input '{text or '<EOF>'}'")

    def _arguments(self, closing: str, depth: int, *, scoped: bool = False) -> int:
        """Expressions up to the closing sign, and their number; with `scoped`, leading plain names are variables of the
        others."""
        outer, count = self._known, 0
        while scoped and self._peek()[0] == "name" and self._peek(1)[1] == ",":
            self._known |= {self._next()}
            self._at += 1
        while not self._take(closing):
            count += 1
            self.expression(depth + 1)
            if not self._take(","):
                self._need(closing)
                break
        self._known = outer
        return count

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ("", "")

    def _next(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _take(self, text: str) -> bool:
        if self._peek() == ("sign", text):
            self._at += 1
            return True
        return False

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise _Fault(f"Syntax error: mismatched input '{self._peek()[1] or '<EOF>'}' expecting '{text}'")


def _repeats(pattern: str) -> int:
    """Steps to match a pattern, in which each counted repetition is written out."""
    steps = len(pattern)
    for low, high in _REPEATED.findall(pattern):
        steps = min(steps * max(1, int((high or low)[:6])), 1 << 30)
    return steps
