"""Plugins: drafters, policies and rules from outside this repository, by entry points or files. Knows the registries; runs no part."""

import re
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from engine.acceptance import ACCEPTANCES
from engine.contracts import Acceptance, Drafter, LazyPartRegistry, Policy, SystemPart
from engine.drafters import DRAFTERS
from engine.policies import POLICIES

REGISTRIES: dict[type[SystemPart], LazyPartRegistry] = {Drafter: DRAFTERS, Policy: POLICIES, Acceptance: ACCEPTANCES}
NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")  # no sign that the name of a mix has
SAID = ("title", "about", "source")


def register_parts_of_entry_points(entry_points: Iterable[EntryPoint]) -> None:
    """Adds the parts of installed packages, each under the name of its entry point, which names a class.

    Raises `ValueError` as `register_part`, and where a package cannot be imported.
    """
    for point in entry_points:
        origin = f"The entry point {point.name!r} of {point.dist.name if point.dist else 'a package'}"
        try:
            part = point.load()
        except Exception as error:
            raise ValueError(f"{origin} cannot be imported: {type(error).__name__}: {error}") from error
        register_part(point.name, part, origin)


def register_part_of_python_file(path: Path) -> None:
    """Adds the one part that the Python file defines, under the file's name without `.py`.

    Raises `ValueError` as `register_part`, where the file cannot be run, and where it defines no part or several.
    """
    if not path.is_file():
        raise ValueError(f"There is no file {str(path)!r}. Give --part a Python file with one drafter, policy or rule.")
    module = import_module_from_file(path)
    found = [
        each
        for each in vars(module).values()
        if is_drafter_policy_or_acceptance_class(each) and each.__module__ == module.__name__
    ]
    if len(found) != 1:
        names = ", ".join(each.__name__ for each in found) or "none"
        raise ValueError(
            f"{path} must define one drafter, policy or rule, a class derived from engine.contracts; it defines {names}."
        )
    register_part(path.stem, found[0], str(path))


def import_module_from_file(path: Path) -> ModuleType:
    """The module that the file makes. Raises `ValueError` with the file's own error."""
    spec = spec_from_file_location(f"treerace_part_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file. Give --part a file whose name ends in .py.")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    return module


def is_drafter_policy_or_acceptance_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, tuple(REGISTRIES))


def register_part(name: str, part_class: object, origin_in_error: str) -> None:
    """Adds the class to the registry of its kind. From then on page, API, bench and mixes know it by `name`.

    Raises `ValueError` for what is no part, for a name that mixes could not spell or that is taken, and for a part without words.
    """
    if not is_drafter_policy_or_acceptance_class(part_class):
        raise ValueError(
            f"{origin_in_error} is no Drafter, Policy or Acceptance of engine.contracts, but {part_class!r}."
        )
    kind = next(kind for kind in REGISTRIES if issubclass(part_class, kind))  # type: ignore[arg-type]  # it is a class
    registry = REGISTRIES[kind]
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{origin_in_error} is named {name!r}. A part's name has small letters, digits, - and _, such as my-drafter."
        )
    if registry.get(name, part_class) is not part_class:
        raise ValueError(f"{origin_in_error} is named {name!r}, as a {registry.kind} is already. Give it another name.")
    missing = [word for word in SAID if not getattr(part_class, word, "")]
    if missing:
        raise ValueError(f"{origin_in_error} says no {', no '.join(missing)}: a part declares {', '.join(SAID)}.")
    registry[name] = part_class  # type: ignore[assignment]  # of the registry's kind
