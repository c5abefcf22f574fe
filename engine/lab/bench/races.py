"""`python -m engine bench --by races`: MiB of this process after each of many short races.

The first ten races warm up. The second ten are compared with the last ten, so a leak shows as growth.
"""

import statistics
from argparse import Namespace

import psutil
from tqdm import tqdm

from engine.lab.bench.growth import lanes_of
from engine.measure.footprint import MIB
from engine.measure.options import first_prompts, load_given
from engine.race import Race, Settings

TOKENS = 16  # new tokens a race
FEWEST = 30


def main(options: Namespace) -> dict:
    if options.races < FEWEST:
        raise ValueError(
            f"--races must be at least {FEWEST}, got {options.races}: the second ten are compared with the last ten."
        )
    prompts, lanes = first_prompts(options.domain, options.prompts), lanes_of(options.systems)
    pair, mib = load_given(options), []
    for index in tqdm(range(options.races), desc="races", unit="race"):
        Race(pair, Settings(prompts[index % len(prompts)], lanes, max_new_tokens=TOKENS, seed=index)).traces()
        mib.append(psutil.Process().memory_info().rss / MIB)
    second, last = statistics.median(mib[10:20]), statistics.median(mib[-10:])
    print(f"{'races':>8}{'first MiB':>12}{'second ten':>12}{'last ten':>12}{'growth MiB':>12}")
    print(f"{options.races:>8}{mib[0]:>12.1f}{second:>12.1f}{last:>12.1f}{last - second:>+12.1f}")
    row = {"races": options.races, "first": mib[0], "second_ten": second, "last_ten": last, "growth": last - second}
    return {"machine": pair.hardware, "pair": pair.title, "dtype": pair.dtype, **row, "mib": mib}
