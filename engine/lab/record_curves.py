"""`python -m engine curves`: measures the curves that Learn shows, and keeps them in a file with the processor's name.

python -m engine curves                    all of assets/results/curves.json anew
python -m engine curves --only nodes       one of them; the others stay as they are
"""

from argparse import Namespace
from datetime import date
from functools import partial

from tqdm import tqdm

from engine.lab.record_races import read_processor_name
from engine.measure.curves.curves import TOKENS, measure_curve_in_steps
from engine.measure.options import ASSETS
from engine.measure.recordings import record_named_runs_into_json_file
from engine.models.pairs import LoadedPair

CURVES = ASSETS / "results" / "curves.json"


def record_curve(pair: LoadedPair, curve_name: str, command: str) -> dict:
    """The last message of the curve's measurement, with the day, the command and, on a CPU, the processor's name."""
    made = {}
    with tqdm(
        total=1.0, desc=curve_name, bar_format="{desc}: {percentage:3.0f}% [{elapsed}<{remaining}]", mininterval=2
    ) as bar:
        for message in measure_curve_in_steps(pair, curve_name):
            if isinstance(message, dict):
                bar.update(message["done"] - bar.n)
                made = message
    del made["end"], made["done"]
    on_cpu = pair.target.device.type == "cpu" and read_processor_name()
    if on_cpu:
        made["hardware"] = f"{made['hardware']}, {on_cpu}"
    return {**made, "recorded": date.today().isoformat(), "command": command}


def main(options: Namespace) -> None:
    record = partial(record_curve, command=options.command)
    for curve, made, _ in record_named_runs_into_json_file(options, TOKENS, "curve", CURVES, record):
        print(f"{curve}: {made['finding']}", flush=True)
