"""Best drafter: the strongest that the pair has. EAGLE where one was trained, else the draft model, else lookup."""

from engine.drafters.eagle import EagleDrafter
from engine.drafters.lookup import LookupDrafter
from engine.drafters.model import ModelDrafter
from engine.models import LoadedPair


def best_drafter(pair: LoadedPair, capacity: int) -> EagleDrafter | ModelDrafter | LookupDrafter:
    if "eagle" in pair.learned:
        return EagleDrafter(pair, capacity)
    return LookupDrafter(pair, capacity) if pair.draft is None else ModelDrafter(pair, capacity)
