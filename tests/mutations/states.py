"""Mistakes planted in how targets with states read trees. See `mutations.table`."""

from tests.mutations.mutation import of

STATES = [
    *of(
        "forward/recurrent/",
        (
            "a node reads all that stand before it",
            "forest.py::BatchedTrees.ancestor_or_self_mask",
            "found[text, node] |= found[text, parent]",
            "found[text, node, :node] = True",
            "forward/test_states.py::test_a_trees_logits_are_those_of_plain_decoding -k mamba2",
        ),
        (
            "what an ancestor wrote does not fade",
            "nodes.py::run_mamba2_rule_on_trees",
            "read @ written.mT * layer.decay_between(faded)",
            "read @ written.mT * layer.forest.ancestor_or_self_mask[:, None]",
            "forward/test_states.py::test_a_trees_logits_are_those_of_plain_decoding -k mamba2",
        ),
        (
            "a text's state does not fade",
            "nodes.py::run_gated_delta_rule_on_trees",
            "share * (values - kept * (keys @ state))",
            "share * (values - keys @ state)",
            "forward/test_states.py::test_a_trees_logits_are_those_of_plain_decoding -k qwen3_next",
        ),
        (
            "an ancestor's news are not known",
            "nodes.py::run_gated_delta_rule_on_trees",
            "torch.linalg.solve_triangular(said, news, upper=False, unitriangular=True)",
            "news",
            "forward/test_states.py::test_a_trees_logits_are_those_of_plain_decoding -k qwen3_next",
        ),
        (
            "the text's state is committed as it was",
            "nodes.py::TreeStateLayer.commit_states_of_node",
            "last.exp()[..., None] * kept.state[0].float()",
            "kept.state[0].float()",
            "forward/test_states.py::test_a_trees_logits_are_those_of_plain_decoding -k falcon_h1",
        ),
        (
            "the last node's path is taken from another text",
            "nodes.py::TreeStateLayer.commit_states_of_node",
            "self.forest.ancestor_or_self_mask[text_index, node]",
            "self.forest.ancestor_or_self_mask[0, node]",
            "forward/test_batched_forward.py::test_a_batch_of_a_target_with_states_is_close_to_every_sequence_alone -k mamba2",
        ),
    ),
    *of(
        "measure/",
        (
            "what a class says of its states is believed",
            "peers.py::can_transformers_crop_cache",
            "cache.is_croppable",
            "True",
            "forward/test_state_races.py::test_the_cache_tells_where_a_class_does_not",
            "figures",
        ),
    ),
    *of(
        "rounds/",
        (
            "a chain is measured as the tree",
            "timing.py::measure_state_times_and_bytes",
            "binary(nodes)",
            "chain(nodes)",
            "rounds/test_state_costs.py::test_a_tree_keeps_what_a_chain_keeps_and_the_card_tells_it_once_it_is_measured -k lfm2",
            "figures",
        ),
    ),
    *of(
        "record/",
        (
            "one copy is told for all paths",
            "costs.py::RecurrentStateCosts.summary",
            "self.tree_path_count * self.text_state_bytes",
            "self.text_state_bytes",
            "rounds/test_state_costs.py::test_the_words_hold_time_and_memory_of_both_and_what_copies_would_take",
            "figures",
        ),
    ),
]
