"""`python -m engine curves`: measures the curves that Learn shows, and keeps them in a file with the processor's name.

python -m engine curves                    all of assets/results/curves.json anew
python -m engine curves --only nodes       one of them; the others stay as they are
"""

import json
from argparse import Namespace
from datetime import date

from tqdm import tqdm

from engine.lab.record_races import processor
from engine.measure.curves.curves import TOKENS, measure_curve
from engine.measure.options import ASSETS, given_pair, load_given, own_place
from engine.models.pairs import LoadedPair, one_of
from engine.record.compact_json import to_json

CURVES = ASSETS / "results" / "curves.json"


def record_curve(pair: LoadedPair, curve: str, command: str) -> dict:
    """The last message of the curve's measurement, with the day, the command and, on a CPU, the processor's name."""
    made = {}
    with tqdm(
        total=1.0, desc=curve, bar_format="{desc}: {percentage:3.0f}% [{elapsed}<{remaining}]", mininterval=2
    ) as bar:
        for message in measure_curve(pair, curve):
            if isinstance(message, dict):
                bar.update(message["done"] - bar.n)
                made = message
    del made["end"], made["done"]
    on_cpu = pair.target.device.type == "cpu" and processor()
    if on_cpu:
        made["hardware"] = f"{made['hardware']}, {on_cpu}"
    return {**made, "recorded": date.today().isoformat(), "command": command}


def main(given: Namespace) -> None:
    only = given.only and one_of(TOKENS, given.only, "curve")
    named = given_pair(given)
    path = own_place(given.out, CURVES if named.name == "embedded" else None, named.title)
    kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
    pair = load_given(given, named)
    for curve in [only] if only else TOKENS:
        kept[curve] = record_curve(pair, curve, given.command)
        path.write_text(
            "{\n"
            + ",\n".join(f"{json.dumps(name)}: {to_json(kept[name])}" for name in TOKENS if name in kept)
            + "\n}\n"
        )
        print(f"{curve}: {kept[curve]['finding']}", flush=True)
