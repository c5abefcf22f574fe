"""Recordings: named runs in one file of JSON, a line each, of which a command makes all or one anew. Knows options and files."""

import json
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from engine.measure.options import load_pair_of_options, output_path_or_shipped, pair_of_options
from engine.models.pairs import LoadedPair, validate_choice
from engine.record.compact_json import to_compact_json_with_rounded_floats


def record_named_runs_into_json_file(
    options: Namespace,
    names: Collection[str],
    name_kind: str,
    shipped_path: Path,
    make_recording: Callable[[LoadedPair, str], dict[str, Any]],
) -> Iterator[tuple[str, dict[str, Any], Path]]:
    """Makes those of `names` that `--only` leaves, and keeps each in the file beside the others. Yields name, recording and file.

    The file is `--out`, or `shipped_path` for the default pair. Raises `ValueError` for an unknown name, which is called a `name_kind`.
    """
    only = options.only and validate_choice(names, options.only, name_kind)
    named = pair_of_options(options)
    path = output_path_or_shipped(options.out, shipped_path if named.name == "embedded" else None, named.title)
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    pair = load_pair_of_options(options, named)
    for name in [only] if only else names:
        kept[name] = make_recording(pair, name)
        lines = (
            f"{json.dumps(each)}: {to_compact_json_with_rounded_floats(kept[each])}" for each in names if each in kept
        )
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        yield name, kept[name], path
