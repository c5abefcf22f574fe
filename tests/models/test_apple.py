"""Apple silicon, on a machine without it: which device is taken, and what is refused there. `tests/rounds/test_rehearsal.py` races."""

from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
import torch
from transformers import BitsAndBytesConfig, LlamaConfig

from engine.forward.devices import free_bytes, noise_device_or_none_for_cpu, upload, widest_float_dtype
from engine.models import loading, memory
from engine.models.memory import GIB
from engine.models.pairs import PAIRS
from helpers.checkpoints import pair_of, write

MPS = torch.device("mps", 0)


@pytest.fixture
def there(monkeypatch):
    """Says which GPUs there are."""

    def there(*kinds: str) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in kinds)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in kinds)

    return there


@pytest.fixture
def gigabytes(monkeypatch):
    """Says how many GiB of memory are left, and of them how many Metal recommends for the GPU."""

    def gigabytes(left: float, recommended: float, used: float) -> None:
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=int(left * GIB)))
        monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: int(recommended * GIB))
        monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: int(used * GIB))

    return gigabytes


def test_apples_gpu_is_taken_where_it_is_and_no_cuda_gpu_is(there):
    for kinds, best in ((("mps",), "mps"), (("cuda", "mps"), "cuda"), ((), "cpu")):
        there(*kinds)
        assert loading.validate_or_choose_device(None).type == best
    there("mps")
    assert (
        loading.validate_or_choose_device("mps")
        == loading.validate_or_choose_device("mps:0")
        == loading.validate_or_choose_device(None)
        == MPS
    )
    assert (
        loading.validate_or_choose_device("cpu").type == "cpu" and loading.validate_or_choose_dtype(None, MPS) == "bf16"
    )


def test_apples_gpu_is_refused_where_it_is_not(there):
    there("cuda")
    with pytest.raises(
        ValueError, match=r"no Apple GPU here that PyTorch can use, got device='mps'\. Use device='cpu'"
    ):
        loading.validate_or_choose_device("mps")
    with pytest.raises(ValueError, match=r"cpu, mps, cuda or cuda:N, got 'mps:1'"):
        loading.validate_or_choose_device("mps:1")


def test_training_takes_a_cpu_where_apples_gpu_is_and_refuses_that(there):
    there("mps")
    assert loading.validate_or_choose_device(None, loading.TRAINED_ON).type == "cpu"
    with pytest.raises(ValueError, match=r"must be cpu, cuda or cuda:N, got 'mps'"):
        loading.validate_or_choose_device("mps", loading.TRAINED_ON)


@pytest.mark.parametrize("quantisation", ["8-bit", "nf4"])
def test_what_bitsandbytes_does_not_keep_there_is_refused(quantisation, there, tmp_path):
    there("mps")
    write(tmp_path)
    with pytest.raises(ValueError, match=rf"does not keep weights in {quantisation} on mps.*--device cpu"):
        loading.check_files_memory_and_choose_quantisation(pair_of(tmp_path), "mps", quantisation=quantisation)


def test_a_checkpoint_in_eight_bits_is_widened_there_where_that_is_asked_for_and_refused_else(
    there, gigabytes, tmp_path
):
    there("mps")
    gigabytes(16, 12, 0)
    kept = BitsAndBytesConfig(load_in_8bit=True).to_dict() | {"quant_method": "bitsandbytes"}
    config = write(tmp_path).config
    config.quantization_config = kept
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"does not keep weights in 8-bit on mps"):
        loading.check_files_memory_and_choose_quantisation(pair_of(tmp_path), "mps")
    assert (
        loading.check_files_memory_and_choose_quantisation(pair_of(tmp_path), "mps", quantisation="none")[1] == "none"
    )


def test_the_default_pair_is_widened_there(there, gigabytes):
    there("mps")
    gigabytes(16, 12, 0)
    assert loading.check_files_memory_and_choose_quantisation(PAIRS["embedded"], "mps")[1] == "none"
    with pytest.raises(ValueError, match=r"does not keep weights in 8-bit on mps"):
        loading.check_files_memory_and_choose_quantisation(PAIRS["embedded"], "mps", quantisation="8-bit")


def test_a_target_is_not_spread_there(there, tmp_path):
    there("mps")
    write(tmp_path)
    with pytest.raises(ValueError, match=r"--spread layers puts .* and this is mps\. Take --spread none"):
        loading.check_files_memory_and_choose_quantisation(pair_of(tmp_path), "mps", spread="layers")


def test_free_memory_is_what_metal_recommends_and_never_more_than_is_left(gigabytes):
    gigabytes(20, 12, 2)
    assert free_bytes(MPS) == 10 * GIB
    gigabytes(3, 12, 2)
    assert free_bytes(MPS) == 3 * GIB


def test_no_quantisation_is_advised_where_none_can_be_had(gigabytes):
    config, alone = (
        LlamaConfig(hidden_size=1024, intermediate_size=2048, num_hidden_layers=4),
        replace(PAIRS["small"], drafters_folder=None),
    )
    for device, advised in ((MPS, False), (torch.device("cpu"), True)):
        left = memory.count_needed_bytes_by_use(config, device, torch.bfloat16, "nf4").total() / GIB
        gigabytes(left * 1.01, 12, 2)
        with pytest.raises(ValueError) as refusal:
            memory.count_needed_bytes_or_refuse(alone, config, None, device, torch.bfloat16, "none")
        assert ("--quantisation" in str(refusal.value)) == advised


def test_numbers_narrow_where_there_is_no_float64():
    assert (widest_float_dtype(MPS), widest_float_dtype(torch.device("cpu"))) == (torch.float32, torch.float64)
    assert upload(torch.ones(2, dtype=torch.float64), torch.device("cpu")).dtype == torch.float64
    assert (noise_device_or_none_for_cpu(MPS), noise_device_or_none_for_cpu(torch.device("cuda", 0))) == (
        None,
        torch.device("cuda", 0),
    )
