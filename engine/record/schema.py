"""Schema: the race file's JSON Schema, for others who write or read race files. Knows no race.

Run as a script, it prints what stands in assets/race-file.schema.json.

It says what single values may be. What they must be to one another, as a tree's parents, is checked by `engine.record.race_file.check`.
"""

import json

from engine.record.parsing import adapter
from engine.record.race_file import Record

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def text() -> str:
    """The schema as it stands in `assets/race-file.schema.json`."""
    return json.dumps({"$schema": DIALECT} | adapter(Record).json_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(text(), end="")
