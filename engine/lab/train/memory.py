"""`python -m engine bench --by segments`: the peak memory of one training step of the parallel-tree drafter, by number of segments.

On a GPU the figure is the allocator's own peak. On a CPU it is the peak of bytes that autograd holds for the backward pass. Every
tensor saved by the forward counts once per storage until it is released; weights do not count. That figure is exact and repeatable. A
process's resident size would depend on what the allocator returns. Temporaries inside an operation are not included.
"""

import weakref
from argparse import Namespace

import torch
from tqdm import tqdm

from engine.lab.train import parallel
from engine.lab.train.features import LISTED, TrainingBatch
from engine.models.loading import TRAINED_ON, checked_device
from engine.nets import NetConfig
from engine.nets.parallel import Parallel

HIDDEN, HEADS, MLP, VOCAB = 320, 5, 896, 4096


class SavedBytes:
    """Counts the bytes that autograd keeps alive inside a `with`; `peak` is the most at any time."""

    def __init__(self, module: torch.nn.Module):
        kept = [*module.parameters(), *module.buffers()]
        self.always = {each.untyped_storage().data_ptr() for each in kept}
        self.holders: dict[int, int] = {}  # by storage, how many saved tensors are in it
        self.live = self.peak = 0
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda held: held.tensor)

    def pack(self, tensor: torch.Tensor) -> "Held":
        held, storage = Held(tensor), tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if address not in self.always:
            self.holders[address] = self.holders.get(address, 0) + 1
            if self.holders[address] == 1:
                self.live += size
                self.peak = max(self.peak, self.live)
            weakref.finalize(held, self.release, address, size)
        return held

    def release(self, address: int, size: int) -> None:
        self.holders[address] -= 1
        if not self.holders[address]:
            del self.holders[address]
            self.live -= size

    def __enter__(self) -> "SavedBytes":
        self.hooks.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self.hooks.__exit__(*error)


class Held:
    """A saved tensor whose release can be noticed."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor


def synthetic(rows: int, length: int) -> TrainingBatch:
    """Random rows of the right shapes."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCAB, (rows, length), generator=generator)
    features = torch.randn(rows, length, 4, HIDDEN, generator=generator)
    tokens = torch.randint(0, VOCAB, (rows, length, LISTED), generator=generator)
    p = torch.rand(rows, length, LISTED, generator=generator).softmax(-1)
    return TrainingBatch(ids, features, torch.ones(rows, length, 4), tokens, p)


def peak_bytes(net: Parallel, batch: TrainingBatch, segments: int) -> int:
    """Peak bytes of one step with slots at every anchor of the batch."""
    device = batch.ids.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        parallel.loss(net, batch, 0, segments, anchors=batch.ids.shape[1]).backward()
        return torch.cuda.max_memory_allocated(device) - before
    with SavedBytes(net) as saved:
        parallel.loss(net, batch, 0, segments, anchors=batch.ids.shape[1]).backward()
    return saved.peak


def main(options: Namespace) -> dict:
    if min(*options.segments, options.length, options.rows, options.depth) < 1:
        raise ValueError("--segments, --length, --rows and --depth must be at least 1.")
    device = checked_device(options.device, TRAINED_ON)
    torch.manual_seed(0)
    config = NetConfig("parallel", HIDDEN, HEADS, MLP, parallel.LAYERS, options.depth, VOCAB)
    net = Parallel(config, torch.randn(VOCAB, HIDDEN) * 0.05, torch.randn(VOCAB, HIDDEN) * 0.05).to(device)
    batch = synthetic(options.rows, options.length).to(device)
    what = "allocator's peak" if device.type != "cpu" else "peak of what autograd holds"
    print(f"one step, {options.rows} x {options.length} tokens, {options.depth} depths at every anchor; {what}")
    print("segments      MiB  of one segment's")
    peaks = {}
    for segments in tqdm(options.segments, desc="segments", unit="step"):
        peaks[segments] = peak_bytes(net, batch, segments) / 2**20
        of_first = 100 * peaks[segments] / peaks[options.segments[0]]
        tqdm.write(f"{segments:8d} {peaks[segments]:8.1f}  {of_first:.0f} %")
        net.zero_grad(set_to_none=True)
    return {"measure": what, "length": options.length, "depth": options.depth, "mib": peaks}
