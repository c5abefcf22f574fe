"""A pretend CUDA device: its numbers are on the CPU, and its tensors say cuda:0. `install` makes torch.cuda say that there is one GPU.

What CUDA refuses raises here too: mixed devices, and within a capture whatever makes the host wait. `WAITS` counts these waits. A graph
records operations and replays them on the same memory. Memory that it did not make and that is gone raises.

It cannot show races between streams, memory in use, kernels that CUDA lacks for a type, CUDA's rounding, or what a driver refuses.
torch lets Python define one device in a process, so whoever installs it needs a process of its own.
"""
