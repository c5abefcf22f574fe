"""MTP drafter: the target's own layers for multi-token prediction go on from its final state. One call a level answers all branches.

It keeps entries as EAGLE does: rows of drafted nodes are thrown away, and made anew from the target's true states. Gemma 4's assistant
takes the layers' place where the pair has one. It reads the target's own cache, and keeps no rows.
"""

from engine.contracts import INSTEAD, MissingRequirement
from engine.drafters.eagle import EagleDrafter
from engine.forward.cache import KVCache
from engine.models.pairs import QUANTISATIONS, LoadedPair
from engine.nets.assistant import AssistantSession
from engine.nets.formats.assistant import TARGETS
from engine.nets.formats.mtp_told import count_declared_mtp_layers, explain_unread_mtp


class MtpDrafter(EagleDrafter):
    title = "MTP"
    about = "Layers of the target's own checkpoint, or its assistant, trained to guess ahead."
    source = "multi-token prediction of DeepSeek-V3 (2024)"
    required_resource = "mtp"

    @classmethod
    def find_missing_requirement(cls, pair: LoadedPair) -> MissingRequirement | None:
        return (
            None
            if pair.has(cls.required_resource)
            else MissingRequirement("MTP layers in the target's own files", explain_missing_mtp(pair))
        )

    def bind_target_cache(self, cache: KVCache) -> None:
        if isinstance(self.session, AssistantSession):
            self.session.target = cache


def explain_missing_mtp(pair: LoadedPair) -> str:
    """Why the pair has no such drafter, in a sentence."""
    config, held = pair.target.config, ""
    if pair.target.spread or pair.dtype in QUANTISATIONS:
        how = "spread over devices" if pair.target.spread else f"kept in {pair.dtype}"
        held = f" The target is {how}, and MTP layers are read beside plain weights on one device only."
    elif config.model_type in TARGETS:
        held = " The assistant of a Gemma 4 is a checkpoint of its own: give its folder as --drafter."
    elif refused := explain_unread_mtp(config):
        held = f" {refused}"
    elif named := count_declared_mtp_layers(config):
        first = config.num_hidden_layers
        held = f" By its config it ships {named}, and its files hold no tensor of layer {first} and none of mtp."
    return (
        f"The pair {pair.title} has no MTP layers: its target ships none that can be read here.{held} Choose a target that does. "
        f"{INSTEAD}"
    )
