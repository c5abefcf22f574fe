"""Mistakes planted in the path of a GPU, which a device that pretends to be one shows. See `mutations.table`."""

from tests.mutations.mutation import of

REHEARSAL, SESSION = "tests/rounds/test_rehearsal.py", "tests/forward/test_session_gpu.py"
LENT = f"{SESSION} -k 'lent or lender'"
MEMORY = "tests/models/test_memory_needed.py"

DEVICES = [
    *of(
        "forward/",
        (
            "a cache that comes back is thrown away",
            "lender.py",
            "self.idle.append((key, made))",
            "pass",
            LENT,
            "speed",
        ),
        (
            "idle caches have no bound",
            "lender.py",
            "sum(each.size for _, each in self.idle) > self.most",
            "False",
            LENT,
            "speed",
        ),
        (
            "idle caches stay where memory is short",
            "cuda_graphs.py",
            "            runner.lender.clear()\n",
            "",
            f"{SESSION} -k lack_of_memory",
            "speed",
        ),
        (
            "one lack of memory ends all graphs",
            "cuda_graphs.py",
            "if failure is not None and not lacks_memory(failure):",
            "if failure is not None:",
            f"{SESSION} -k lack_of_memory",
            "speed",
        ),
        (
            "a capture is not tried again when idle caches are gone",
            "cuda_graphs.py",
            "            failure = self.attempt(runner.device, pool)\n        if",
            "        if",
            f"{SESSION} -k lack_of_memory",
            "speed",
        ),
        (
            "of a capture's errors the last one is told",
            "cuda_graphs.py",
            "error = error.__context__\n    return error",
            "break\n    return error",
            f"{SESSION} -k first_one_is_told",
            "figures",
        ),
    ),
    *of(
        "",
        (
            "a lane's own graphs are captured on its clock",
            "race.py",
            "graphed = not self.pair.target.eager\n",
            "graphed = False\n",
            f"{REHEARSAL} -k after_readiness",
            "figures",
        ),
        (
            "three copies for a level",
            "policies/shared/ranking.py",
            "split(on_host(torch.cat([each.double() for each in ranked(sampling.scaled(log_q), noise, width)], -1)))",
            "tuple(each.cpu().numpy() for each in ranked(sampling.scaled(log_q), noise, width))",
            f"{REHEARSAL} -k waits_once",
            "speed",
        ),
        (
            "every net copies the target's matrices",
            "nets/layer.py",
            "shared if shared.is_cuda else shared.float()",
            "shared.float()",
            f"{REHEARSAL} -k share_the_targets",
            "figures",
        ),
        (
            "drafters take no memory",
            "models/memory.py",
            "+ drafting + nets).total",
            "+ drafting).total",
            f"{MEMORY} -k learned_drafters",
            "figures",
        ),
        (
            "caches are counted as long as the text",
            "models/memory.py",
            "static_capacity(tokens), LANES",
            "tokens, LANES",
            f"{MEMORY} -k 'real_size or rows_count'",
            "figures",
        ),
    ),
]
