"""Reading: a visitor's race file becomes what the page shows, in a process of its own, which starts at once. Knows no torch."""

import json
import os
import sys
from contextlib import suppress
from typing import Any

from engine.page.views import standalone
from engine.page.views.wire import serialise_whole_race_as_event
from engine.record.files import MOST_BYTES
from engine.record.parsing import parse_json
from engine.record.race_file import Record, first_and_last_of_shown_lanes
from engine.record.served_trace import ServedTrace, is_event_stream, is_served_answer, join_event_stream

BYTES, SECONDS = 2**30, 10  # of memory and of processor time that reading may take
PATIENT = 5  # how far it stands behind races on a processor; 19 would be last


def convert_race_file_for_page(output_form: str, file_text: str) -> dict[str, Any]:
    """What `output_form` makes of a race file's text, or under "refused" what is wrong with the file.

    "opened" is an event of the page, or under "served" the steps in an answer of vLLM; "replay_page" is a page of its own.
    """
    try:
        values = join_event_stream(file_text) if is_event_stream(file_text) else parse_json(file_text, MOST_BYTES)
        if output_form == "replay_page":
            return {"html": standalone.render_replay_page(Record.from_values(values))}
        if is_served_answer(values):
            return {"served": ServedTrace.from_vllm_answer(values).to_dict()}
        record = Record.from_values(values)
        first_and_last_of_shown_lanes(record)
        return {"event": serialise_whole_race_as_event(record)}
    except ValueError as error:
        return {"refused": f"This race file cannot be read. {error}"}
    except MemoryError:
        return {"refused": "This race file cannot be read. It takes more memory than there is for it."}


def limit_priority_memory_and_time() -> None:
    """This process goes behind all others and ends when it takes too much, where the system knows such limits."""
    with suppress(ImportError):
        import resource

        os.nice(PATIENT)
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def main(arguments: list[str]) -> None:
    limit_priority_memory_and_time()
    text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    sys.stdout.buffer.write(json.dumps(convert_race_file_for_page(arguments[0], text)).encode())
