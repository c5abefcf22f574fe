"""A planted mistake, and how it is put into a source. Knows no file, no process and no clock.

A mistake names a function and what stands there as Python reads it. Formatting, comments and lines that moved change nothing.
"""

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

DEFINITIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef


@dataclass(frozen=True)
class Mutation:
    """In `function` of `file`, `old` becomes `new`: an expression for an expression, or else statements for statements.

    `function` is a name, `Class.method`, `Class`, or empty for the whole file. `test` is what pytest is given: a test
    function, and perhaps `-k` with words that choose among its cases. One of them must fail. `costs` says what the mistake harms.
    """

    name: str
    file: str
    function: str
    old: str
    new: str
    test: str
    costs: str = "text"

    def planted(self, source: str) -> str:
        """The file's source with the mistake, as its syntax tree is written.

        Raises `ValueError` when the function, or `old` in it, is not there exactly once.
        """
        tree = ast.parse(source)
        old, new = parsed(self.old), parsed(self.new)
        if len(old) == len(new) == 1 and isinstance(old[0], ast.Expr) and isinstance(new[0], ast.Expr):
            old, new = [old[0].value], [new[0].value]
        places = list(places_of(old, self.scope(tree)))
        if len(places) != 1:
            raise ValueError(f"{self.file}: {self.function or 'it'} has {self.old!r} {len(places)} times, not once.")
        [(node, field, at)] = places
        beside = getattr(node, field)
        if isinstance(beside, list):
            beside[at : at + len(old)] = new
        else:
            setattr(node, field, new[0])
        return ast.unparse(tree)

    def scope(self, tree: ast.Module) -> ast.AST:
        scope: ast.AST = tree
        for name in filter(None, self.function.split(".")):
            named = [each for each in scope.body if isinstance(each, DEFINITIONS) and each.name == name]
            if len(named) != 1:
                raise ValueError(f"{self.file} defines {self.function} {len(named)} times, not once.")
            [scope] = named
        return scope


def parsed(text: str) -> list[ast.stmt]:
    return ast.parse(textwrap.dedent(text)).body


def places_of(nodes: list[ast.AST], scope: ast.AST) -> Iterator[tuple[ast.AST, str, int]]:
    """Where these neighbours stand in the scope: their parent, its field, and the first one's place in the field."""
    wanted = [*map(ast.dump, nodes)]
    for parent in ast.walk(scope):
        for field, value in ast.iter_fields(parent):
            beside = value if isinstance(value, list) else [value]
            for at in range(len(beside) - len(nodes) + 1):
                some = beside[at : at + len(nodes)]
                if isinstance(some[0], type(nodes[0])) and [*map(ast.dump, some)] == wanted:
                    yield parent, field, at


def of(room: str, *rows: tuple[str, ...]) -> list[Mutation]:
    """The mistakes of a room of `engine/`. A row is a name, `file::function`, `old`, `new`, a test in `tests/`, and what it costs."""
    return [
        Mutation(name, f"engine/{room}{file}", function, old, new, f"tests/{test}", *costs)
        for name, place, old, new, test, *costs in rows
        for file, _, function in [place.partition("::")]
    ]
