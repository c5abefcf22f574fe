"""The bigram table: counting, rounding, saving."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.models.bigram import BigramTable


def test_counts_by_hand():
    """0 1 0 1 0 2 over four tokens: after 0 comes 1 twice and 2 once; u = (4, 3, 2, 1) / 10."""
    table = BigramTable.build_from_token_stream(
        np.array([0, 1, 0, 1, 0, 2], dtype=np.uint16), vocab_size=4, follower_count=2
    )
    assert table.next_ids.tolist() == [[1, 2], [0, 1], [0, 1], [0, 1]]
    wanted = [[2.3 / 4, 1.2 / 4], [2.4 / 3, 0.3 / 3], [0.4, 0.3], [0.4, 0.3]]  # 2 and 3 have no follower: u itself
    torch.testing.assert_close(table.next_logp.exp(), torch.tensor(wanted))
    q = table.log_q([0, 3]).exp()
    torch.testing.assert_close(q, torch.tensor([[0.0625, 0.575, 0.3, 0.0625], [0.4, 0.3, 0.15, 0.15]]))


def test_counting_equals_a_dense_count():
    """Every listed probability and the choice of the k best, against a V x V matrix."""
    stream = torch.randint(0, 50, (3000,), generator=torch.Generator().manual_seed(0)).pow(2) // 50
    dense = np.zeros((50, 50))
    np.add.at(dense, (stream[:-1].numpy(), stream[1:].numpy()), 1)
    unigram = (np.bincount(stream.numpy(), minlength=50) + 1) / 3050
    p = torch.from_numpy((dense + unigram) / (dense.sum(1, keepdims=True) + 1)).float()
    table = BigramTable.build_from_token_stream(stream, vocab_size=50, follower_count=6)
    torch.testing.assert_close(table.next_logp.exp(), p.topk(6).values)
    torch.testing.assert_close(table.next_logp.exp(), p.gather(1, table.next_ids))
    assert all(len(set(row)) == 6 for row in table.next_ids.tolist())


@pytest.mark.parametrize(("vocab", "k"), [(300, 16), (300, 1), (8, 8)])
def test_rows_are_whole_distributions_after_float16(vocab, k, tmp_path):
    """A token that is always followed by the same one, tokens never seen, and a table that lists everything."""
    noise = torch.randint(0, vocab, (2000,), generator=torch.Generator().manual_seed(1)) // 2
    BigramTable.build_from_token_stream(torch.cat([torch.tensor([0, 1] * 5000), noise]), vocab, k).save(
        tmp_path / "table"
    )
    log_q = BigramTable.load(tmp_path / "table").log_q(list(range(vocab)))
    assert (log_q.shape, log_q.dtype) == ((vocab, vocab), torch.float32)
    assert log_q.isfinite().all()
    torch.testing.assert_close(log_q.double().exp().sum(-1), torch.ones(vocab).double(), atol=1e-5, rtol=0)


def test_rounding_past_the_whole_leaves_the_unlisted_something():
    """Listed masses of 1 and of 1.01: the rest would be 0 or below, and its logarithm -inf or NaN."""
    log_q = BigramTable(torch.tensor([[1], [2], [0]]), torch.tensor([[0.0], [0.01], [-1.0]])).log_q([0, 1, 2])
    assert log_q.isfinite().all()
    torch.testing.assert_close(log_q.exp().sum(-1), torch.ones(3))
    assert log_q.argmax(-1).tolist() == [1, 2, 0]


def test_a_saved_table_comes_back_in_the_documented_form(tmp_path):
    stream = torch.randint(0, 300, (5000,), generator=torch.Generator().manual_seed(2))
    table = BigramTable.build_from_token_stream(stream, 300)
    table.save(tmp_path / "small")
    again, stored = BigramTable.load(tmp_path / "small"), load_file(tmp_path / "small")
    assert {name: (value.dtype, tuple(value.shape)) for name, value in stored.items()} == {
        "next_ids": (torch.int16, (300, 16)),
        "next_logp": (torch.float16, (300, 16)),
    }
    assert torch.equal(again.next_ids, table.next_ids)
    torch.testing.assert_close(again.log_q([7, 299]), table.log_q([7, 299]), atol=5e-3, rtol=0)
    BigramTable.build_from_token_stream(torch.arange(40_000), 40_000, follower_count=1).save(tmp_path / "large")
    assert load_file(tmp_path / "large")["next_ids"].dtype == torch.int32
    assert BigramTable.load(tmp_path / "large").next_ids[39_998].tolist() == [39_999]


def test_bad_tables_are_sentences(tmp_path):
    (tmp_path / "noise").write_bytes(b"not a table")
    save_file({"other": torch.zeros(2)}, tmp_path / "other")
    for name in ("noise", "other"):
        with pytest.raises(ValueError, match=rf"{name} is no bigram table"):
            BigramTable.load(tmp_path / name)
    with pytest.raises(ValueError, match=r"one shape \[V, k\], got \[2, 1\] and \[2, 2\]"):
        BigramTable(torch.zeros(2, 1), torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"over 2 tokens names ids from 0 to 2"):
        BigramTable(torch.tensor([[0], [2]]), torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"got k=9"):
        BigramTable.build_from_token_stream(np.arange(4), 4, follower_count=9)
    with pytest.raises(ValueError, match=r"ids from 0 to 3"):
        BigramTable.build_from_token_stream(np.arange(5), 4, follower_count=2)
    with pytest.raises(IndexError):
        BigramTable.build_from_token_stream(np.arange(4), 4, follower_count=2).log_q([4])
