"""DSpark's net (deepseek-ai/DeepSpec `modeling/dspark`): DFlash's block, and a low-rank bias by the token before each guess.

Every slot of the block predicts the token behind it, the anchor's own slot too. A slot does not know the path, so a Markov head tells
it the last token of it: the logits behind token t take the bias W2 W1[t]. The bias is the same at every depth.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from engine.forward.uploads import uploaded
from engine.nets.dflash import DFlash, DFlashSizes
from engine.nets.dflash_compiled import CompiledDSpark
from engine.nets.layer import Linear


@dataclass(frozen=True)
class DSparkSizes(DFlashSizes):
    """As `DFlashSizes`. `rank` is the number of columns of W1 and W2, and `confident` that of a confidence head, 0 without one."""

    rank: int = 0
    confident: int = 0


class DSpark(DFlash):
    kind = "dspark"
    sizes: DSparkSizes
    guessed = ("markov_head.markov_w2.weight",)

    def __init__(self, sizes: DSparkSizes, *shared: Any):
        super().__init__(sizes, *shared)
        before, after = nn.Embedding(sizes.vocab, sizes.rank), Linear(sizes.rank, sizes.vocab)
        nn.init.zeros_(after.weight)
        self.markov_head = nn.ModuleDict({"markov_w1": before, "markov_w2": after})

    def packed(self) -> CompiledDSpark | None:
        return None if super().packed() is None else CompiledDSpark(self)

    def bias(self, tokens: Tensor) -> Tensor:
        """What is added to the logits `[..., V]` behind `tokens [...]`."""
        return self.markov_head["markov_w2"](self.markov_head["markov_w1"](tokens))

    def following(self, slots: Tensor, tokens: list[int] | Tensor) -> Tensor:
        """Log-probabilities `[n, V]` behind `tokens [n]`, from the log-probabilities `[n, V]` of slots that do not know them."""
        if self.compiled:
            return self.compiled.following(slots, tokens)
        return (slots + self.bias(uploaded(tokens, slots.device))).log_softmax(-1)
