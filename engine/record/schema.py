"""Schema: the race file's JSON Schema, for others who write or read race files. Knows no race.

Run as a script, it prints what stands in assets/race-file.schema.json.

It says what single values may be. `engine.record.race_file.validate_record` checks how they fit together, as a tree's parents do.
"""

import json

from engine.record.parsing import build_pydantic_adapter
from engine.record.race_file import Record

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def build_race_file_json_schema() -> str:
    """The schema as it stands in `assets/race-file.schema.json`."""
    return (
        json.dumps({"$schema": DIALECT} | build_pydantic_adapter(Record).json_schema(), indent=1, ensure_ascii=False)
        + "\n"
    )


if __name__ == "__main__":
    print(build_race_file_json_schema(), end="")
