"""Whether a text is a CEL expression over given variables: its grammar and its names, not its types.

Finds typing errors when a file is read; the code that evaluates an expression compiles it. Source: the grammar of the
CEL language definition. Must never evaluate anything.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<string>[rRbB]{0,2}(?:\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'))"
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


class _Fault(Exception):
    pass


def fault(expression: str, *, variables: Mapping[str, Collection[str]]) -> str:
    """The fault of an expression; empty if none is seen. `variables` have fields; none for any."""
    try:
        parser = _Parser(_tokens(expression), variables)
        parser.expression(0)
        parser.end()
    except _Fault as error:
        return str(error)
    return ""


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
            self._at += 1
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
                member = self._next()
                if self._take("("):
                    self._arguments(")", depth, scoped=member in _MACROS)
            elif self._take("["):
                self._take("?")
                self.expression(depth + 1)
                self._need("]")
            else:
                return

    def _primary(self, depth: int) -> None:
        sort, text = self._peek()
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
            self._arguments("]", depth)
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

    def _arguments(self, closing: str, depth: int, *, scoped: bool = False) -> None:
        """Expressions up to the closing sign; with `scoped`, leading plain names are variables of the others."""
        outer = self._known
        while scoped and self._peek()[0] == "name" and self._peek(1)[1] == ",":
            self._known |= {self._next()}
            self._at += 1
        while not self._take(closing):
            self.expression(depth + 1)
            if not self._take(","):
                self._need(closing)
                break
        self._known = outer

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
