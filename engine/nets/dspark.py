"""DSpark's net (deepseek-ai/DeepSpec `modeling/dspark`): DFlash's block, and a low-rank bias by the token before each guess.

Every slot of the block predicts the token behind it, the anchor's own slot too. A slot does not know the path, so a Markov head tells
it the last token of it: the logits behind token t take the bias W2 W1[t]. The bias is the same at every depth. What a slot says before
it is biased has a place for each token that the net guesses, and none for others.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from engine.forward.devices import upload
from engine.forward.layer_ops import expand_log_q_to_full_vocab
from engine.forward.llama_layer import Linear
from engine.nets.dflash import DFlash, DFlashSizes
from engine.nets.dflash_compiled import CompiledDSpark


@dataclass(frozen=True)
class DSparkSizes(DFlashSizes):
    """As `DFlashSizes`. `markov_rank` is the number of columns of W1 and W2, and `confidence_head_width` that of a confidence head,
    0 without one.
    """

    markov_rank: int = 0
    confidence_head_width: int = 0


class DSpark(DFlash):
    kind = "dspark"
    sizes: DSparkSizes

    def __init__(self, sizes: DSparkSizes, *shared: Any):
        super().__init__(sizes, *shared)
        before, after = nn.Embedding(sizes.vocab, sizes.markov_rank), Linear(sizes.markov_rank, sizes.own_vocab)
        nn.init.zeros_(after.weight)
        self.markov_head = nn.ModuleDict({"markov_w1": before, "markov_w2": after})

    def build_compiled(self) -> CompiledDSpark | None:
        return None if super().build_compiled() is None else CompiledDSpark(self)

    def logit_bias_after(self, tokens: Tensor) -> Tensor:
        """What is added to the logits `[..., own_vocab]` behind `tokens [...]`."""
        return self.markov_head["markov_w2"](self.markov_head["markov_w1"](tokens))

    def expand_slots_to_full_vocab(self, slots: Tensor) -> Tensor:
        return slots

    def condition_on_tokens(self, slots: Tensor, tokens: list[int] | Tensor) -> Tensor:
        """Log-probabilities `[n, V]` behind `tokens [n]`, from those of slots that do not know them, `[n, own_vocab]`."""
        if self.compiled:
            return self.compiled.condition_on_tokens(slots, tokens)
        own = (slots + self.logit_bias_after(upload(tokens, slots.device))).log_softmax(-1)
        return (
            own
            if own.shape[1] == self.sizes.vocab
            else expand_log_q_to_full_vocab(own, self.vocabulary, self.sizes.vocab)
        )
