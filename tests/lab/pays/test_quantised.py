"""The doctor of a quantisation: what fewer bits change of a target, against figures by hand."""

from dataclasses import replace

import pytest
import torch

from engine.forward.runner import Runner
from engine.lab.pays import quantised
from engine.models.quantising import replace_with_rounded_linear
from helpers.commands import told
from helpers.pairs import tiny_llama, tiny_pair

TEXTS = ["Once upon a time there was a little fox. " * 12, "x", "def f(a): return a"]


@pytest.fixture
def pairs():
    plain = tiny_pair()
    return plain, replace(plain, target=Runner(replace_with_rounded_linear(tiny_llama(0))), dtype="8-bit")


def test_figures_are_those_by_hand(pairs):
    plain, kept = pairs
    pieces = quantised.tokenise_into_pieces(plain, TEXTS)
    assert [len(piece) for piece in pieces if len(piece) > 1] == [len(piece) for piece in pieces]
    found = quantised.compare_kl_favourites_and_losses(plain, kept, pieces)
    laws = []
    for pair in pairs:
        with torch.inference_mode():
            every = [pair.target.model(torch.tensor([piece])).logits[0, :-1].double() for piece in pieces]
        laws.append(torch.cat(every).log_softmax(-1))
    p, q = laws
    following = torch.cat([torch.tensor(piece[1:]) for piece in pieces])[:, None]
    assert found["tokens"] == len(p) > 400
    assert found["kl"] == pytest.approx((p.exp() * (p - q)).sum(-1).mean().item(), rel=1e-2) and found["kl"] > 0
    assert found["changed"] == pytest.approx((p.argmax(-1) != q.argmax(-1)).double().mean().item(), abs=2 / len(p))
    assert found["loss"] == pytest.approx(-p.gather(1, following).mean().item(), rel=1e-4)
    assert found["kept_loss"] == pytest.approx(-q.gather(1, following).mean().item(), rel=1e-4)
    same = quantised.compare_kl_favourites_and_losses(plain, plain, pieces)
    assert same["kl"] == same["changed"] == 0.0


def test_the_command_says_it_in_a_sentence(pairs, capsys, monkeypatch, tmp_path):
    loaded = {"none": pairs[0], "8-bit": pairs[1]}
    monkeypatch.setattr(quantised, "load_pair_of_options", lambda options, pair: loaded[options.quantisation])
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    said, figures = told(
        capsys, "doctor", "--quantisation", "8-bit", "--prompts", str(tmp_path / "texts.txt"), "--pair", "small"
    )
    assert said == [
        f"8-bit changes {figures['changed']:.1%} of the target's favourites: KL {figures['kl']:.4f} nats, "
        f"loss {figures['loss']:.4f} -> {figures['kept_loss']:.4f} nats, over {figures['tokens']:,} tokens."
    ]


def test_texts_of_single_tokens_are_refused(pairs):
    with pytest.raises(ValueError, match="hold no two tokens in a row"):
        quantised.tokenise_into_pieces(pairs[0], ["x", "y"])
