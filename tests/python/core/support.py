"""The tests behind each cell of docs/support.md.

`EVIDENCE` maps (row, column) to tests, as `<operator>/<file>::<name>` below tests/python/. test_support.py compares the rows,
columns and tests with the page and the tree.
"""

from __future__ import annotations

from collections.abc import Iterator

INPUTS = ("CPU", "CUDA", "dtypes", "true lengths")
DERIVATIVES = ("gradients", "second derivatives", "forward mode", "`vmap`")
TORCH = ("`torch.compile`", "`torch.export`", "autocast", "CUDA graphs", "DDP, FSDP")
COLUMNS = (*INPUTS, *DERIVATIVES, *TORCH)

SERIES, LOSSES, JOINT = "soft-DTW, DTW", "transducer losses", "transducer loss from the joint network"
PRUNED = "pruned transducer loss"
ALIGNMENT, DECODING = "transducer alignment", "transducer decoding"
CTC, CTC_ALIGNMENT = "CTC losses", "CTC alignment, monotonic alignment search"
CTC_DECODING = "CTC decoding"
SINKHORN, NORMALIZE, LOW_RANK = "Sinkhorn", "Sinkhorn normalisation", "low-rank transport"
GROMOV, LSTM = "Gromov–Wasserstein", "LSTM"


def _row(operator: str, **files: str) -> Iterator[tuple[str, str]]:
    """(column, test) of "column number: test" pairs: `c3="test_x::test_y"` is the fourth column, several by spaces."""
    for column, tests in files.items():
        for test in tests.split():
            file, name = test.split("::")
            folder = {"test_export": "core", "test_search": "decoding"}.get(file, operator)
            yield COLUMNS[int(column[1:])], f"{folder}/{file}.py::{name}"


_ROWS = {
    SERIES: _row(
        "soft_dtw",
        c0="test_values::test_lengths",
        c1="test_values::test_lengths test_torch_cuda::test_nothing_waits_for_the_gpu",
        c2="test_fuzz::test_series test_layouts::test_half_types_sum_in_float32",
        c3="test_lengths::test_padding_never_leaks",
        c4="test_autograd::test_gradcheck_series_with_lengths",
        c5="test_second_order::test_gradgradcheck test_cuda_options::test_hessian_vector_products",
        c6="test_second_order_torch::test_forward_mode_over_backward",
        c7="test_transforms::test_vmap_equals_a_loop",
        c8="test_compile::test_compiled_equals_eager",
        c9="test_compile::test_export",
        c10="test_pytorch::test_autocast_takes_inputs_as_they_are test_calls::test_mixed_dtypes_under_autocast",
        c11="test_torch_cuda::test_a_step_in_a_cuda_graph",
        c12="test_ddp::test_two_processes_take_the_step_of_one",
    ),
    CTC: _row(
        "ctc",
        c0="test_values::test_torch_in_float64",
        c1="test_cuda::test_agrees_with_the_cpu",
        c2="test_values::test_torch_in_float64 test_cuda::test_agrees_with_the_cpu",
        c3="test_values::test_layouts_are_equal",
        c4="test_autograd::test_gradcheck",
        c5="test_autograd::test_second_derivatives_are_refused",
        c6="test_export::test_forward_mode_through_ctc_is_refused",
        c7="test_autograd::test_vmap_is_a_larger_batch test_transforms::test_forward_sum_under_vmap",
        c8="test_autograd::test_compile test_transforms::test_compiled_forward_sum",
        c9="test_export::test_ctc",
        c10="test_autograd::test_autocast_reads_half_logits test_transforms::test_forward_sum_under_autocast",
        c11="test_cuda::test_cuda_graph_with_changing_lengths",
        c12="test_ddp::test_two_processes_take_the_step_of_one",
    ),
    CTC_ALIGNMENT: _row(
        "ctc",
        c0="test_align::test_dynamic_programming test_align::test_monotonic_search",
        c1="test_cuda::test_alignments_are_the_cpu_path_s test_cuda::test_monotonic_alignments_are_the_cpu_path_s",
        c2="test_align::test_dynamic_programming",
        c3="test_align::test_dynamic_programming test_align::test_monotonic_search",
        c4="test_align::test_dynamic_programming",
        c7="test_autograd::test_vmap_is_a_larger_batch",
        c8="test_transforms::test_compiled_alignments",
        c9="test_export::test_ctc",
    ),
    CTC_DECODING: _row(
        "ctc",
        c0="test_decode::test_a_wide_beam_is_exact test_decode::test_greedy_search_is_the_best_path",
        c1="test_decode::test_a_wide_beam_is_exact test_decode::test_large_searches_are_the_cpu_path_s",
        c2="test_decode::test_it_is_the_definition test_decode::test_greedy_search_is_the_best_path",
        c3="test_decode::test_it_is_the_definition",
        c4="test_decode::test_no_gradient_is_kept",
        c8="test_decode::test_compile",
        c11="test_decode::test_a_cuda_graph_with_changing_lengths test_search::test_ctc_in_a_cuda_graph",
    ),
    LOSSES: _row(
        "transducer",
        c0="test_values::test_against_the_reference",
        c1="test_values::test_against_the_reference",
        c2="test_values::test_against_the_reference",
        c3="test_edges::test_padding_is_never_read",
        c4="test_values::test_against_the_reference",
        c5="bad_calls/functional::second_derivative",
        c6="test_autograd::test_forward_mode_is_refused",
        c7="test_autograd::test_omega_under_vmap",
        c8="test_autograd::test_compile",
        c9="test_export::test_transducer_loss",
        c10="test_autograd::test_autocast",
        c11="test_autograd::test_cuda_graph_with_changing_lengths",
        c12="test_ddp::test_two_processes_take_the_step_of_one",
    ),
    JOINT: _row(
        "transducer",
        c0="test_joint::test_is_the_loss_of_its_logits",
        c1="test_joint::test_is_the_loss_of_its_logits",
        c2="test_joint::test_no_less_exact_than_materialised",
        c3="test_joint::test_nan_stays_in_its_utterance",
        c4="test_joint::test_gradcheck",
        c5="bad_calls/joint::second_derivative",
        c6="test_export::test_forward_mode_through_the_joint_is_refused",
        c7="test_joint_torch::test_torch_func",
        c8="test_joint_torch::test_compile",
        c9="test_export::test_transducer_loss_from_joint",
        c10="test_joint_torch::test_autocast",
        c11="test_joint_torch::test_cuda_graph_with_changing_lengths",
        c12="test_arguments::test_an_output_layer_that_is_sharded_alone_is_refused"
        " test_arguments::test_a_flat_parameter_of_fsdp_is_refused",
    ),
    PRUNED: _row(
        "transducer",
        c0="test_pruned::test_is_the_composition_of_fast_rnnts_functions",
        c1="test_pruned::test_is_the_composition_of_fast_rnnts_functions",
        c2="test_pruned::test_other_types",
        c3="test_pruned::test_padding_is_ignored_and_runs_repeat",
        c4="test_pruned::test_gradcheck",
        c5="test_pruned::test_no_second_derivatives",
        c6="test_pruned::test_forward_mode_is_refused",
        c7="test_pruned_torch::test_torch_func",
        c8="test_pruned_torch::test_compile",
        c10="test_pruned::test_autocast",
        c11="test_pruned::test_cuda_graph",
    ),
    ALIGNMENT: _row(
        "transducer",
        c0="test_align::test_every_path_one_by_one",
        c1="test_align::test_every_path_one_by_one",
        c2="test_export::test_alignments_of_every_dtype",
        c3="test_align::test_an_utterance_is_the_same_alone_padded_and_packed",
        c4="test_align::test_it_has_no_gradient",
        c7="test_align::test_vmap",
        c8="test_align::test_compile",
        c9="test_export::test_transducer_align",
        c11="test_align::test_cuda_graph_with_changing_lengths",
    ),
    DECODING: _row(
        "transducer",
        c0="test_greedy::test_it_is_the_definition",
        c1="test_greedy::test_it_is_the_definition",
        c2="test_greedy::test_dtypes",
        c3="test_greedy::test_alone_it_has_the_same_bits",
        c4="test_greedy::test_no_gradient_is_kept",
        c8="test_beam::test_decoding_within_compiled_code",
        c11="test_greedy::test_a_cuda_graph_finds_the_same test_beam::test_a_cuda_graph_finds_the_same",
    ),
    SINKHORN: _row(
        "transport",
        c0="test_values::test_value_and_linear",
        c1="test_values::test_value_and_linear",
        c2="test_values::test_value_and_linear test_values::test_half_types_are_widened",
        c3="test_values::test_batches_ragged_lengths_and_single_problems_agree",
        c4="test_autograd::test_gradcheck",
        c5="test_autograd::test_gradgradcheck_of_the_value",
        c6="test_autograd::test_forward_mode",
        c7="test_autograd::test_torch_func test_divergence::test_compile_and_vmap",
        c8="test_autograd::test_compile",
        c9="test_export::test_sinkhorn",
        c10="test_export::test_sinkhorn_under_autocast",
        c11="test_torch_cuda::test_a_step_in_a_cuda_graph",
    ),
    NORMALIZE: _row(
        "transport",
        c0="test_normalize::test_it_is_the_loop_in_float64",
        c1="test_normalize::test_it_is_the_loop_in_float64",
        c2="test_normalize::test_errors_are_at_most_twice_the_loop_s test_normalize::test_dtypes_and_shapes",
        c3="test_normalize::test_infinities_forbid_and_nan_stays_in_its_matrix",
        c4="test_normalize::test_gradcheck",
        c5="test_normalize::test_second_derivatives_are_refused",
        c6="test_normalize::test_forward_mode_is_refused",
        c7="test_normalize::test_vmap_is_a_larger_batch",
        c8="test_normalize::test_compile",
        c9="test_normalize::test_module",
        c10="test_normalize::test_autocast_takes_logits_as_they_are",
        c11="test_normalize::test_a_step_in_a_cuda_graph",
    ),
    LOW_RANK: _row(
        "transport",
        c0="test_low_rank::test_the_objective_is_no_worse_than_pot_s",
        c1="test_low_rank::test_both_devices_agree test_low_rank::test_memory_is_linear",
        c2="test_low_rank::test_the_objective_is_no_worse_than_pot_s test_low_rank::test_half_types_and_autocast",
        c3="test_low_rank::test_points_without_weight_get_nothing",
        c4="test_low_rank::test_the_value_s_gradient_is_that_of_the_whole_map",
        c5="test_low_rank::test_other_derivatives_are_refused",
        c6="test_low_rank::test_transforms_are_refused",
        c7="test_low_rank::test_transforms_are_refused",
        c10="test_low_rank::test_half_types_and_autocast",
        c11="test_low_rank::test_a_solve_in_a_cuda_graph",
    ),
    GROMOV: _row(
        "transport",
        c0="test_gromov::test_plans_and_values_of_pot",
        c1="test_gromov::test_plans_and_values_of_pot",
        c2="test_gromov::test_plans_and_values_of_pot test_gromov_sampled::test_the_seed_alone_decides",
        c3="test_gromov::test_a_batch_is_its_problems",
        c4="test_gromov::test_value_is_the_objective_and_its_gradient_that_of_the_minimum",
        c5="test_gromov::test_second_derivatives_are_refused",
        c6="test_gromov::test_forward_mode_is_refused",
        c7="bad_calls/gromov::CALLS",
        c8="test_gromov::test_within_compiled_code",
        c10="test_autocast::test_results_are_those_without_autocast",
    ),
    LSTM: _row(
        "recurrent",
        c0="test_values::test_parity_with_torch",
        c1="test_cuda::test_both_devices_agree",
        c2="test_values::test_error_is_at_most_twice_the_plain_loops",
        c3="test_values::test_lengths_are_packed_sequences",
        c4="test_values::test_parity_with_torch",
        c5="test_second_order::test_gradgradcheck",
        c6="test_modules::test_checkpointing_and_second_derivatives",
        c7="test_second_order::test_batches_of_gradients",
        c8="test_modules::test_compile",
        c9="test_modules::test_compiled_cells_and_exported_modules",
        c10="test_modules::test_autocast",
        c11="test_cuda_tapes::test_memory_and_graphs",
        c12="test_training::test_wrapped_modules_train_alike",
    ),
}

EVIDENCE: dict[tuple[str, str], list[str]] = {}
for _operator, _tests in _ROWS.items():
    for _column, _test in _tests:
        EVIDENCE.setdefault((_operator, _column), []).append(_test)
