"""Who imports whom, read from sources without running them. Knows modules and folders; knows nothing of their purpose.

Imports inside functions and under TYPE_CHECKING count, because a reader has to follow them too. Only a search for modules that
load one another leaves out those under TYPE_CHECKING: they never run, and a part may name the type of the whole that contains it.
"""

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

Graph = dict[str, set[str]]
ENGINE = Path(__file__).parents[2] / "engine"
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # where a statement holds others


def modules_of(root: Path, package: str) -> dict[str, str]:
    """Sources by dotted module name; a folder's `__init__.py` goes by the folder's name."""
    sources = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return sources


@cache
def parsed(source: str) -> ast.Module:
    """The source's syntax tree, of which many questions are asked. Not to be changed."""
    return ast.parse(source)


def classes_of(source: str) -> list[str]:
    """The names of a source's own classes, without those inside of others."""
    return [each.name for each in parsed(source).body if isinstance(each, ast.ClassDef)]


@cache
def imported(source: str, types: bool = True) -> frozenset[tuple[str, str]]:
    """Every import of a source as (module, name taken from it). The name is empty where the module itself is imported.

    Without `types`, imports under `if TYPE_CHECKING:` are left out.
    """
    found = set()
    todo: list[ast.AST] = [parsed(source)]
    while todo:  # statements alone: an expression holds no import
        node = todo.pop()
        if isinstance(node, ast.Import):
            found |= {(each.name, "") for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level or node.module is None:
                raise ValueError(f"Line {node.lineno} imports by a relative path; write the whole one.")
            found |= {(node.module, each.name) for each in node.names}
        elif not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
        else:
            todo += [inner for block in BLOCKS for inner in getattr(node, block, ())]
    return frozenset(found)


def module_arrows(sources: Mapping[str, str], types: bool = True) -> Graph:
    """Module -> other modules among `sources` that it imports. `from a import b` leads to `a.b` where that is a module, else to `a`."""
    arrows: Graph = {}
    for name, source in sources.items():
        ways = [(f"{module}.{taken}", module) for module, taken in imported(source, types)]
        leading = {inner if inner in sources else outer for inner, outer in ways}
        arrows[name] = (leading & sources.keys()) - {name}
    return arrows


DRAWS = {
    "multinomial",
    "bernoulli",
    "normal",
    "poisson",
    "seed",
    "manual_seed",
}  # of torch, and all that begins with "rand"


def draws(source: str) -> set[str]:
    """What a source names that draws from a generator which all share: functions of torch, of numpy.random and of random."""
    taken = {f"{module}.{name}" for module, name in imported(source) if name}
    attributes = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Attribute)]
    taken |= {f"{node.value.id}.{node.attr}" for node in attributes if isinstance(node.value, ast.Name)}
    return set(filter(shared, taken))


def shared(name: str) -> bool:
    module, _, last = name.rpartition(".")
    if module == "torch":
        return last in DRAWS or last.startswith("rand")
    return name in ("np.random", "numpy.random") or (module == "random" and last != "Random")


BUILDINGS = {"page", "lab"}  # folders of the engine that hold rooms


def room_of(module: str) -> str:
    """`engine.forward.runner` is in the room `forward`, `engine.page.web.race` and `engine.page.web` itself in `page.web`.

    `engine.tree` is a room of its own, and so is the package itself.
    """
    parts = module.split(".")[1:] or [module]
    inside = len(parts) > 2 or (len(parts) == 2 and ENGINE.joinpath(*parts).is_dir())
    return ".".join(parts[:2]) if parts[0] in BUILDINGS and inside else parts[0]


def room_arrows(modules: Mapping[str, Iterable[str]]) -> Graph:
    """Room -> other rooms that it imports."""
    arrows: Graph = {}
    for name, others in modules.items():
        arrows.setdefault(room_of(name), set()).update(room_of(other) for other in others)
    return {room: others - {room} for room, others in arrows.items()}


def cycle(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """The names along one cycle, the first one again at its end; empty where there is none."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name not in done:
            for other in sorted(arrows.get(name, ())):
                if found := walk(other, [*way, name]):
                    return found
            done.add(name)
        return []

    return next(filter(None, (walk(name, []) for name in sorted(arrows))), [])


def differences(arrows: Mapping[str, set[str]], table: Mapping[str, Iterable[str]]) -> list[str]:
    """A sentence for every arrow that the table does not allow, and for every entry of the table that nothing uses."""
    said = []
    for room in sorted(arrows.keys() | table.keys()):
        there, allowed = arrows.get(room, set()), set(table.get(room, ()))
        said += [f"{room} imports {other}, which the table does not allow." for other in sorted(there - allowed)]
        said += [f"The table lets {room} import {other}, which it does not." for other in sorted(allowed - there)]
    return said


def within(sources: Mapping[str, str], outside: str) -> set[str]:
    """Modules that import the library `outside` or anything in it."""
    return {
        name
        for name, source in sources.items()
        if any(module == outside or module.startswith(f"{outside}.") for module, _ in imported(source))
    }
