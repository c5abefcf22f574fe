"""A target that begins as a larger one which computes what a small one does
(`engine.lab.train.pretrain.copy_weights_preserving_function`).
"""

import pytest
import torch

from engine.lab.train import pretrain as pretraining


@torch.inference_mode()
def test_a_grown_target_gives_the_small_ones_logits_until_it_learns():
    torch.manual_seed(0)
    small = pretraining.build_untrained_llama(32, 4, 1, 80, 512).eval()
    ids = torch.arange(0, 512, 37)[None]
    for hidden, mlp, layers in ((64, 200, 4), (96, 512, 7)):
        large = pretraining.build_untrained_llama(hidden, layers, hidden // 32, mlp, 512).eval()
        pretraining.copy_weights_preserving_function(small, large)
        assert torch.allclose(large(ids).logits, small(ids).logits, atol=1e-5)
        rows = large.model.layers[0].self_attn.q_proj.weight
        assert not torch.equal(rows[:, :32], rows[:, 32:64])  # so copies learn apart


def test_only_a_tied_llama_with_room_for_its_numbers_grows():
    small, large = (
        pretraining.build_untrained_llama(hidden, 4, hidden // 32, mlp, 512) for hidden, mlp in ((32, 80), (64, 8))
    )
    with pytest.raises(ValueError, match="can not grow to"):
        pretraining.copy_weights_preserving_function(small, large)
