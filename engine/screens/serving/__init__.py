"""A system's setting for the engines that serve models, one file per engine. Imports none of the engines.

A part's class declares its `counterpart` there; these files know how an engine spells it. TARGET, DRAFT and PROMPT stand for the
reader's own.
"""

from dataclasses import asdict, replace
from typing import Any

from engine.race import SHAPE, checked
from engine.screens.serving.llama_cpp import llama_cpp
from engine.screens.serving.setting import Setting
from engine.screens.serving.sglang import sglang
from engine.screens.serving.tensorrt_llm import tensorrt_llm
from engine.screens.serving.transformers import transformers
from engine.screens.serving.vllm import vllm
from engine.systems import find

ENGINES = (vllm, sglang, tensorrt_llm, llama_cpp, transformers)


def configurations(
    system: str,
    depth: int | None = None,
    width: int | None = None,
    nodes: int | None = None,
    temperature: float = 0.0,
) -> list[dict]:
    """The setting in every engine, as plain values. Where depth, width or nodes is None, the system's own counts.

    Raises `ValueError` as a race would, and for a system that is wrong on purpose.
    """
    found = find(system)
    if found.broken:
        raise ValueError(f"{found.name} is wrong on purpose and not for production. Choose {found.name.split('!')[0]}.")
    asked = dict(zip(SHAPE, (depth, width, nodes), strict=True))
    shape: dict[str, Any] = {
        name: checked(name, getattr(found, name) if value is None else value) for name, value in asked.items()
    }
    setting = Setting(replace(found, **shape), checked("temperature", temperature))
    return [asdict(engine(setting)) for engine in ENGINES]
