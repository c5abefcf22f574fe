"""A system's setting for engines that serve models. Parts declare a `counterpart`, `table` spells it, `rendering` fills the rows."""

from dataclasses import replace
from typing import Any

from engine.page.screens.serving.rendering import Setting, rendered
from engine.page.screens.serving.table import ENGINES
from engine.race import SHAPE, checked
from engine.systems import find


def configurations(
    system: str, depth: int | None = None, width: int | None = None, nodes: int | None = None, temperature: float = 0.0
) -> list[dict]:
    """The setting in every engine; None is the system's own. Raises `ValueError` as a race would, and for a system that is broken."""
    found = find(system)
    if found.broken:
        raise ValueError(f"{found.name} is wrong on purpose and not for production. Choose {found.name.split('!')[0]}.")
    asked = dict(zip(SHAPE, (depth, width, nodes), strict=True))
    shape: dict[str, Any] = {
        name: checked(name, getattr(found, name) if value is None else value) for name, value in asked.items()
    }
    setting = Setting(replace(found, **shape), checked("temperature", temperature))
    return [rendered(engine, setting) for engine in ENGINES]
