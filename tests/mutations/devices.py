"""Mistakes planted in the path of a GPU, which a device that pretends to be one shows. See `mutations.table`."""

from tests.mutations.mutation import of

DEVICES = [
    *of(
        "forward/",
        (
            "a device knows no window",
            "runner_gpu.py::StaticForward.__call__",
            "self.runner.window",
            "None",
            "fast/test_equal_to_reference.py::test_a_fast_version_is_its_reference -k 'round_gpu and mistral and eagle'",
        ),
        (
            "every layer of a device's forward has the window",
            "runner_gpu.py::StaticForward.run_layers_and_head",
            "masks[stack.config.layer_types[number - 1]]",
            "masks['sliding_attention']",
            "fast/test_equal_to_reference.py::test_a_fast_version_is_its_reference -k 'round_gpu and qwen3 and eagle'",
        ),
        (
            "a cache that comes back is thrown away",
            "lender.py::IdleCacheLender.return_to_idle_and_evict",
            "self.idle.append((key, made))",
            "pass",
            "forward/test_session_gpu.py::test_a_lender_lends_what_came_back_last",
            "speed",
        ),
        (
            "idle caches have no bound",
            "lender.py::IdleCacheLender.return_to_idle_and_evict",
            "sum(each.size for _, each in self.idle) > self.most",
            "False",
            "forward/test_session_gpu.py::test_a_lender_keeps_no_more_bytes_than_its_limit_and_the_latest_first",
            "speed",
        ),
        (
            "idle caches stay where memory is short",
            "cuda_graphs.py::CapturedOrEagerFunction.__init__",
            "runner.lender.clear()",
            "pass",
            "forward/test_session_gpu.py::test_a_lack_of_memory_drops_idle_caches_and_ends_no_graphs",
            "speed",
        ),
        (
            "one lack of memory ends all graphs",
            "cuda_graphs.py::CapturedOrEagerFunction.__init__",
            "failure is not None and not is_out_of_memory(failure)",
            "failure is not None",
            "forward/test_session_gpu.py::test_a_lack_of_memory_drops_idle_caches_and_ends_no_graphs",
            "speed",
        ),
        (
            "a capture is not tried again when idle caches are gone",
            "cuda_graphs.py::CapturedOrEagerFunction.__init__",
            """
if failure is not None and is_out_of_memory(failure):
    runner.lender.clear()
    torch.cuda.empty_cache()
    failure = self.try_capture(runner.device, pool)
""",
            """
if failure is not None and is_out_of_memory(failure):
    runner.lender.clear()
    torch.cuda.empty_cache()
""",
            "forward/test_session_gpu.py::test_a_lack_of_memory_drops_idle_caches_and_ends_no_graphs",
            "speed",
        ),
        (
            "of a capture's errors the last one is told",
            "cuda_graphs.py::root_cause_of",
            "error = error.__context__",
            "break",
            "forward/test_session_gpu.py::test_of_the_errors_of_a_capture_the_first_one_is_told",
            "figures",
        ),
    ),
    *of(
        "",
        (
            "a lane's own graphs are captured on its clock",
            "race.py::Race.warm_up",
            "self.pair.target.captures_graphs",
            "False",
            "core/test_race.py::test_where_forwards_are_graphs_a_lane_warms_up_in_its_own_caches",
            "figures",
        ),
        (
            "three copies for a level",
            "policies/shared/ranking.py::shortlist_by_shared_gumbel_on_device",
            "torch.cat([each.to(widest_float_dtype(log_q.device)) for each in found], -1).cpu()",
            "torch.cat([each.cpu().double() for each in found], -1)",
            "rounds/test_rehearsal.py::test_on_the_host_a_round_waits_once_for_every_level_and_once_to_decide",
            "speed",
        ),
        (
            "every net copies the target's matrices",
            "nets/layer.py::Net.__init__",
            "shared if shared.is_cuda or shared.is_mps else shared.float()",
            "shared.float()",
            "rounds/test_rehearsal.py::test_learned_drafters_share_the_targets_matrices",
            "figures",
        ),
        (
            "drafters take no memory",
            "models/memory.py::count_needed_bytes_or_refuse",
            "count_needed_bytes_by_use(target_config, device, dtype, quantisation).total() + drafting + nets",
            "count_needed_bytes_by_use(target_config, device, dtype, quantisation).total() + drafting",
            "models/test_memory_needed.py::test_learned_drafters_count_as_they_lie_in_memory",
            "figures",
        ),
        (
            "caches are counted as long as the text",
            "models/memory.py::count_needed_bytes_by_use",
            "round_up_static_capacity(tokens)",
            "tokens",
            "models/test_memory_needed.py::test_a_real_size_is_counted_without_its_memory",
            "figures",
        ),
    ),
]
