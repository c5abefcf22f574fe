"""`python -m engine bench --by races`: MiB of this process after each of many short races.

The first ten races warm up. The second ten are compared with the last ten, so a leak shows as growth.
"""

import statistics
from argparse import Namespace

from tqdm import tqdm

from engine.lab.bench.growth import lanes_of
from engine.measure.footprint import resident_mib
from engine.measure.options import first_prompts, load_given
from engine.models.pairs import LoadedPair
from engine.race import Race, Settings

TOKENS = 16  # new tokens a race
FEWEST = 30


def by_races(pair: LoadedPair, prompts: list[str], lanes: tuple[str, ...], races: int) -> dict:
    """Resident MiB after each race of the lanes, and by how much the last ten exceed the second ten."""
    mib = []
    for index in tqdm(range(races), desc="races", unit="race"):
        settings = Settings(prompts[index % len(prompts)], lanes, max_new_tokens=TOKENS, seed=index)
        Race(pair, settings).traces()
        mib.append(resident_mib())
    second, last = statistics.median(mib[10:20]), statistics.median(mib[-10:])
    return {
        "races": races,
        "first": mib[0],
        "second_ten": second,
        "last_ten": last,
        "growth": last - second,
        "mib": mib,
    }


def main(options: Namespace) -> dict:
    if options.races < FEWEST:
        raise ValueError(
            f"--races must be at least {FEWEST}, got {options.races}: the second ten are compared with the last ten."
        )
    prompts, lanes = first_prompts(options.domain, options.prompts), lanes_of(options.systems)
    pair = load_given(options)
    row = by_races(pair, prompts, lanes, options.races)
    print(f"{'races':>8}{'first MiB':>12}{'second ten':>12}{'last ten':>12}{'growth MiB':>12}")
    print(
        f"{row['races']:>8}{row['first']:>12.1f}{row['second_ten']:>12.1f}{row['last_ten']:>12.1f}{row['growth']:>+12.1f}"
    )
    return {"machine": pair.hardware, "pair": pair.title, "dtype": pair.dtype, **row}
