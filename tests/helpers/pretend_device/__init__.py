"""A pretend device: its numbers are on the CPU, and its tensors say cuda:0 or mps:0. `install` makes torch say that it is there.

What both refuse raises here too: mixed devices. Of CUDA it is, within a capture, whatever makes the host wait. `WAITS` counts these
waits. A graph records operations and replays them on the same memory. Memory that it did not make and that is gone raises. Of mps it is
numbers that are wider than 32 bits and not whole, and pinned memory.

It cannot show races between streams, memory in use, operations that a device lacks, its rounding, or what a driver refuses.
torch lets Python define one device in a process, so whoever installs it needs a process of its own.
"""
