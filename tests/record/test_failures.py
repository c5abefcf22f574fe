"""Which errors mean that memory ran out, as PyTorch, cuBLAS and cuDNN put it."""

import pytest
import torch

from engine.record.failures import is_out_of_memory

SHORT = [
    MemoryError(),
    torch.OutOfMemoryError(),
    RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
]


@pytest.mark.parametrize("error", SHORT, ids=repr)
def test_memory_that_ran_out_is_known_by_kind_or_words(error):
    assert is_out_of_memory(error)


def test_other_errors_are_others():
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not is_out_of_memory(ValueError("CUBLAS_STATUS_NOT_INITIALIZED"))
