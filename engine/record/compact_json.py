"""Compact JSON: the numbers and texts of a record in few characters, for wires and files."""

import json
import math
from typing import Any


def to_compact_json_with_rounded_floats(value: Any) -> str:
    """Compact JSON. Floats have six digits; null stands for a float that is not finite, which JSON cannot say."""
    return json.dumps(
        round_floats_and_replace_non_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )


def round_floats_and_replace_non_finite(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: round_floats_and_replace_non_finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [round_floats_and_replace_non_finite(each) for each in value]
    return value
