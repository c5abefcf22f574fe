"""Cache memory: what a pair's caches take, and how much they may. Knows sizes and the device; allocates nothing."""

from engine.forward.devices import free_bytes
from engine.models.pairs import LoadedPair

SHARE = 0.5  # of the memory that is free, for all caches
NODES = 64  # of the largest tree that a race may ask for


def max_lane_cache_bytes(pair: LoadedPair, rows: int) -> int:
    """Bytes that a lane's caches of so many rows take at most, with states and a tree's nodes. Without a draft rows count twice."""
    row = pair.target.cache_row_bytes + (pair.draft or pair.target).cache_row_bytes
    return rows * row + pair.target.state_bytes_per_text + NODES * pair.target.state_bytes_per_node


def max_bytes_of_all_caches(pair: LoadedPair) -> float:
    """Bytes that all caches may take together, on the device that the pair is on."""
    return SHARE * free_bytes(pair.target.device)


def explain_cache_overflow(pair: LoadedPair, sequence_count: int, rows_per_sequence: int) -> str:
    """Why caches of so many rows for so many sequences do not fit, and how many would; "" when they fit."""
    each, free = max_lane_cache_bytes(pair, rows_per_sequence), max_bytes_of_all_caches(pair)
    if sequence_count * each <= free:
        return ""
    return (
        f"{sequence_count} caches of {rows_per_sequence:,} rows take {sequence_count * each / 1e6:,.0f} MB, "
        f"and {free / 1e6:,.0f} MB are there. {int(free // each)} would fit."
    )
