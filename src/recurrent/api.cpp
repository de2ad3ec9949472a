// The LSTM's public functions: each checks the contract of the public header, then hands over to the device's
// path.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/contract.h"
#include "core/ways.h"
#include "cpu/describe.h"
#include "recurrent/problem.h"
#include "warpalign/plan.h"

namespace warpalign {
namespace {

using detail::check_aligned;
using detail::few_enough;
using detail::recurrent::cells_of;
using detail::recurrent::directions_of;
using detail::recurrent::input_of;
using detail::recurrent::output_of;
using detail::recurrent::rows_of;

// Four times an extent, padded, fits into int32.
constexpr std::int32_t kLargest = 1 << 28;
constexpr int kMostLayers = 4096;

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

Status check_extent(const char* name, std::int64_t extent, std::int64_t smallest, const char* expected) {
  if (extent >= smallest && extent <= kLargest) return {};
  return Status::invalid(name, expected, static_cast<double>(extent));
}

Status check_sizes(const LstmProblem& p) {
  if (size_of(p.dtype) == 0) {
    return Status::invalid("dtype", "one of the values of DType", static_cast<double>(p.dtype));
  }
  const bool is_wider = is_half(p.dtype) && p.cell_dtype == DType::kFloat32;
  if (p.cell_dtype != p.dtype && !is_wider) {
    return Status::invalid("cell_dtype", "the dtype of x, or float32 for half types",
                           static_cast<double>(p.cell_dtype));
  }
  const struct {
    const char* name;
    std::int64_t extent, smallest;
    const char* expected;
  } extents[] = {
      {"steps", p.steps, 1, "1 to 2^28 steps"},           {"batch", p.batch, 0, "0 to 2^28 rows"},
      {"input", p.input, 1, "1 to 2^28 features"},        {"hidden", p.hidden, 1, "1 to 2^28 units"},
      {"projection", p.projection, 0, "0 to 2^28 units"},
  };
  for (const auto& e : extents) {
    if (Status s = check_extent(e.name, e.extent, e.smallest, e.expected); !s.ok()) return s;
  }
  if (p.projection >= p.hidden) {
    return Status::invalid("projection", "fewer units than the hidden size", p.projection);
  }
  if (p.layers < 1 || p.layers > kMostLayers) {
    return Status::invalid("layers", "1 to 4096 layers", p.layers);
  }
  if (p.side_streams.count < 0 || (p.side_streams.count > 0 && !p.side_streams.streams)) {
    return Status::invalid("side_streams", "at least 0 streams, and a pointer to them", p.side_streams.count);
  }
  if (p.row_starts && p.lengths) {
    return Status::invalid("lengths", "none with packed rows, which have theirs", 1);
  }
  if (p.packed_rows < 0) {
    return Status::invalid("packed_rows", "at least 0", static_cast<double>(p.packed_rows));
  }
  const std::int64_t cells = cells_of(p), rows = p.row_starts ? p.packed_rows : 1;
  const std::int64_t steps = p.row_starts ? 1 : p.steps, batch = p.row_starts ? 1 : p.batch;
  const std::int64_t widest = std::max<std::int64_t>(input_of(p, 0), 4 * static_cast<std::int64_t>(p.hidden));
  if (!few_enough({cells, rows, steps, batch, widest + 64}) ||
      !few_enough(
          {cells, 4 * static_cast<std::int64_t>(p.hidden) + 64, input_of(p, 0) + 2 * output_of(p) + 64})) {
    return Status::invalid("hidden", "at most 2^48 entries in every array", p.hidden);
  }
  return {};
}

Status check_settings(const LstmProblem& p) {
  if (p.activation != LstmActivation::kSoft && p.activation != LstmActivation::kHard) {
    return Status::invalid("activation", "one of the values of LstmActivation",
                           static_cast<double>(p.activation));
  }
  const struct {
    const char* name;
    double value;
    bool valid;
    const char* expected;
  } numbers[] = {
      {"hard_slope", p.hard_slope, p.hard_slope > 0, "a finite number > 0"},
      {"hard_offset", p.hard_offset, p.hard_offset > 0 && p.hard_offset < 1, "a number between 0 and 1"},
      {"layer_norm_eps", p.layer_norm_eps, p.layer_norm_eps > 0, "a finite number > 0"},
      {"dropout", p.dropout, p.dropout >= 0 && p.dropout < 1, "a probability in [0, 1)"},
      {"weight_dropout", p.weight_dropout, p.weight_dropout >= 0 && p.weight_dropout < 1,
       "a probability in [0, 1)"},
      {"zoneout_hidden", p.zoneout_hidden, p.zoneout_hidden >= 0 && p.zoneout_hidden < 1,
       "a probability in [0, 1)"},
      {"zoneout_cell", p.zoneout_cell, p.zoneout_cell >= 0 && p.zoneout_cell < 1, "a probability in [0, 1)"},
  };
  for (const auto& n : numbers) {
    if (!n.valid || !std::isfinite(n.value)) return Status::invalid(n.name, n.expected, n.value);
  }
  return {};
}

// A pointer that must be there, or need not be, to elements of `size` bytes.
Status check_read(const char* name, const void* data, bool wanted, std::size_t size) {
  if (wanted && !data) return Status::invalid(name, "a pointer to its data", 0);
  return check_aligned(name, data, size);
}

Status check_weights(const LstmProblem& p) {
  const std::size_t size = size_of(p.dtype);
  if (!p.weights)
    return Status::invalid("weights", "an array of LstmWeights, one per layer and direction", 0);
  for (int cell = 0; cell < cells_of(p); ++cell) {
    const LstmWeights& w = p.weights[cell];
    const struct {
      const char* name;
      const void* data;
      bool wanted;
    } pointers[] = {
        {"weight_ih", w.ih, true},
        {"weight_hh", w.hh, true},
        {"bias_ih", w.bias_ih, false},
        {"bias_hh", w.bias_hh, false},
        {"weight_hr", w.hr, p.projection > 0},
        {"weight_ln_ih", w.ln_ih, p.layer_norm},
        {"weight_ln_hh", w.ln_hh, p.layer_norm},
        {"weight_ln_c", w.ln_cell, p.layer_norm},
        {"bias_ln_c", w.ln_cell_bias, p.layer_norm},
    };
    for (const auto& one : pointers) {
      if (Status s = check_read(one.name, one.data, one.wanted, size); !s.ok()) {
        return s;
      }
    }
  }
  return {};
}

Status check_inputs(const LstmProblem& p, Device device) {
  const std::size_t size = size_of(p.dtype);
  if (Status s = check_read("x", p.x.data, rows_of(p) > 0, size); !s.ok()) return s;
  if (Status s = detail::check_strides("x", p.x, p.row_starts ? 1 : 0); !s.ok()) return s;
  if (Status s = check_weights(p); !s.ok()) return s;
  if (p.packed_weights && p.training && p.weight_dropout > 0) {
    return Status::invalid("packed", "none in training with weight dropout", 1);
  }
  if (Status s = check_aligned("packed", p.packed_weights, workspace_alignment(device)); !s.ok()) return s;
  if (Status s = check_aligned("h0", p.h0, size); !s.ok()) return s;
  if (Status s = check_aligned("c0", p.c0, size_of(p.cell_dtype)); !s.ok()) return s;
  return check_read("seed", p.seed, detail::recurrent::draws_masks(p), sizeof(std::uint64_t));
}

// Host execution: the row starts of packed rows.
Status check_row_starts(const LstmProblem& p) {
  if (!p.row_starts) return {};
  const auto invalid = [&](int t) {
    return Status::invalid("row_starts", "numbers from 0 to N whose differences never grow and are at most B",
                           p.row_starts[t], t);
  };
  if (p.row_starts[0] != 0) return invalid(0);
  std::int32_t before = p.batch;
  for (int t = 1; t <= p.steps; ++t) {
    const std::int64_t rows = static_cast<std::int64_t>(p.row_starts[t]) - p.row_starts[t - 1];
    if (rows < 0 || rows > before) return invalid(t);
    before = static_cast<std::int32_t>(rows);
  }
  return p.row_starts[p.steps] == p.packed_rows ? Status{} : invalid(p.steps);
}

constexpr Status check_cuda() { return WARPALIGN_HAS_CUDA ? Status{} : detail::kNoCudaPath; }

Status check_problem(const LstmProblem& p, const Execution& execution) {
  if (Status s = detail::check_execution(execution); !s.ok()) return s;
  if (Status s = check_sizes(p); !s.ok()) return s;
  if (Status s = check_settings(p); !s.ok()) return s;
  if (Status s = check_inputs(p, execution.device); !s.ok()) return s;
  if (execution.device == Device::kCuda) return check_cuda();
  if (Status s = check_row_starts(p); !s.ok()) return s;
  return detail::check_lengths(p.lengths, "lengths", "between 0 and T", p.batch, 0, p.steps);
}

bool is_host(const Execution& execution) { return execution.device == Device::kHost; }

// A CPU has one way.
Status check_way_cpu(const Execution& execution) {
  return is_host(execution) ? detail::check_way(execution, {}, "lstm() on a CPU") : Status{};
}

bool is_valid(const LstmProblem& p, const Execution& execution) {
  return (is_host(execution) || check_cuda().ok()) && check_sizes(p).ok() && check_settings(p).ok();
}

std::size_t weight_bytes(const LstmProblem& p, std::int64_t columns) {
  return 4 * static_cast<std::size_t>(p.hidden) * columns * size_of(p.dtype);
}

}  // namespace

std::size_t lstm_packed_bytes(const LstmProblem& problem, const Execution& execution) {
  if (!check_sizes(problem).ok()) return 0;
#if WARPALIGN_HAS_CUDA
  if (!is_host(execution)) return detail::recurrent::packed_bytes_cuda(problem);
#endif
  return is_host(execution) ? detail::recurrent::packed_bytes_cpu(problem) : 0;
}

Status lstm_pack(const LstmProblem& problem, void* packed, const Execution& execution) {
  if (Status s = detail::check_execution(execution); !s.ok()) return s;
  if (Status s = check_sizes(problem); !s.ok()) return s;
  if (Status s = check_weights(problem); !s.ok()) return s;
  if (!is_host(execution) && !check_cuda().ok()) return check_cuda();
  if (Status s = check_read("packed", packed, true, workspace_alignment(execution.device)); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (!is_host(execution)) return detail::recurrent::pack_cuda(problem, packed, execution);
#endif
  if (!cpu::is_described("lstm_pack", 0, execution)) detail::recurrent::pack_cpu(problem, packed);
  return {};
}

std::size_t lstm_tape_bytes(const LstmProblem& problem, const Execution& execution) {
  if (!is_valid(problem, execution)) return 0;
#if WARPALIGN_HAS_CUDA
  if (!is_host(execution)) return detail::recurrent::tape_bytes_cuda(problem);
#endif
  return detail::recurrent::tape_bytes_cpu(problem);
}

std::size_t lstm_workspace_bytes(const LstmProblem& problem, const LstmOutputs& outputs,
                                 const Execution& execution) {
  if (!is_valid(problem, execution)) return 0;
#if WARPALIGN_HAS_CUDA
  if (!is_host(execution)) {
    return detail::recurrent::workspace_bytes_cuda(problem, outputs, execution);
  }
#endif
  return detail::recurrent::workspace_bytes_cpu(problem, outputs, execution);
}

Status lstm(const LstmProblem& problem, const LstmOutputs& outputs, Workspace workspace,
            const Execution& execution) {
  const LstmProblem& p = problem;
  if (Status s = check_problem(p, execution); !s.ok()) return s;
  if (Status s = check_way_cpu(execution); !s.ok()) return s;
  if (p.batch == 0) return {};
  if (outputs.tape && !outputs.y) return Status::invalid("y", "a pointer to its data, with a tape", 0);
  if (outputs.tape && outputs.h_n && outputs.h_n == p.h0) {
    return Status::invalid("h_n", "other memory than h0 with a tape, whose gradients read h0", 1);
  }
  if (outputs.tape && outputs.c_n && outputs.c_n == p.c0) {
    return Status::invalid("c_n", "other memory than c0 with a tape, whose gradients read c0", 1);
  }
  const std::size_t needed = lstm_workspace_bytes(p, outputs, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  const std::size_t size = size_of(p.dtype), cell_size = size_of(p.cell_dtype);
  const std::size_t rows = rows_of(p), cells = cells_of(p), h = output_of(p), c = p.hidden;
  const detail::WrittenMemory places[] = {
      {"y", outputs.y, rows * directions_of(p) * h * size, size},
      {"h_n", outputs.h_n, cells * p.batch * h * size, size},
      {"c_n", outputs.c_n, cells * p.batch * c * cell_size, cell_size},
      {"h_all", outputs.h_all, cells * rows * h * size, size},
      {"c_all", outputs.c_all, cells * rows * c * cell_size, cell_size},
      {"tape", outputs.tape, lstm_tape_bytes(p, execution), workspace_alignment(execution.device)},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = detail::check_written(places); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  if (!is_host(execution)) return detail::recurrent::forward_cuda(p, outputs, workspace, execution);
#endif
  if (cpu::is_described("lstm", needed, execution)) return {};
  return detail::recurrent::forward_cpu(p, outputs, workspace, execution);
}

std::size_t lstm_backward_workspace_bytes(const LstmProblem& problem, const LstmGradients& gradients,
                                          const Execution& execution) {
  if (!is_valid(problem, execution)) return 0;
#if WARPALIGN_HAS_CUDA
  if (!is_host(execution)) {
    return detail::recurrent::backward_workspace_bytes_cuda(problem, gradients, execution);
  }
#endif
  return detail::recurrent::backward_workspace_bytes_cpu(problem, gradients, execution);
}

Status lstm_backward(const LstmProblem& problem, const LstmKept& kept, const LstmIncoming& incoming,
                     const LstmGradients& gradients, Workspace workspace, const Execution& execution) {
  const LstmProblem& p = problem;
  if (Status s = check_problem(p, execution); !s.ok()) return s;
  if (Status s = check_way_cpu(execution); !s.ok()) return s;
  const std::size_t needed = lstm_backward_workspace_bytes(p, gradients, execution);
  if (Status s = detail::check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  const std::size_t alignment = workspace_alignment(execution.device);
  if (Status s = check_read("tape", kept.tape, p.batch > 0, alignment); !s.ok()) return s;
  if (Status s = check_read("y", kept.y, p.batch > 0, size_of(p.dtype)); !s.ok()) return s;
  if (gradients.spent_tape && gradients.spent_tape != kept.tape) {
    return Status::invalid("spent_tape", "null, or the tape", 1);
  }
  const std::size_t size = size_of(p.dtype), cell_size = size_of(p.cell_dtype);
  const struct {
    const char* name;
    const void* data;
    std::size_t size;
  } read[] = {{"grad_y", incoming.y, size},
              {"grad_h_n", incoming.h_n, size},
              {"grad_c_n", incoming.c_n, cell_size},
              {"grad_h_all", incoming.h_all, size},
              {"grad_c_all", incoming.c_all, cell_size}};
  for (const auto& one : read) {
    if (Status s = check_aligned(one.name, one.data, one.size); !s.ok()) return s;
  }
  const std::size_t cells = cells_of(p), h = output_of(p);
  const detail::WrittenMemory places[] = {
      {"grad_x", gradients.x, rows_of(p) * static_cast<std::size_t>(p.input) * size, size},
      {"grad_h0", gradients.h0, cells * p.batch * h * size, size},
      {"grad_c0", gradients.c0, cells * p.batch * static_cast<std::size_t>(p.hidden) * cell_size, cell_size},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = detail::check_written(places); !s.ok()) return s;
  for (int cell = 0; cell < cells_of(p) && gradients.weights; ++cell) {
    const LstmWeightGradients& w = gradients.weights[cell];
    const std::size_t hidden = static_cast<std::size_t>(p.hidden) * size;
    const detail::WrittenMemory of_weights[] = {
        {"grad_weight_ih", w.ih, weight_bytes(p, input_of(p, cell / directions_of(p))), size},
        {"grad_weight_hh", w.hh, weight_bytes(p, output_of(p)), size},
        {"grad_bias", w.bias, 4 * hidden, size},
        {"grad_weight_hr", w.hr, h * hidden, size},
        {"grad_weight_ln_ih", w.ln_ih, 4 * hidden, size},
        {"grad_weight_ln_hh", w.ln_hh, 4 * hidden, size},
        {"grad_weight_ln_c", w.ln_cell, hidden, size},
        {"grad_bias_ln_c", w.ln_cell_bias, hidden, size},
    };
    if (Status s = detail::check_written(of_weights); !s.ok()) return s;
  }
#if WARPALIGN_HAS_CUDA
  if (!is_host(execution)) {
    return detail::recurrent::backward_cuda(p, kept, incoming, gradients, workspace, execution);
  }
#endif
  if (cpu::is_described("lstm_backward", needed, execution)) return {};
  return detail::recurrent::backward_cpu(p, kept, incoming, gradients, workspace, execution);
}

const char* lstm_way([[maybe_unused]] Device device, [[maybe_unused]] int index) {
#if WARPALIGN_HAS_CUDA
  if (device == Device::kCuda) return detail::recurrent::way_cuda(index);
#endif
  return nullptr;
}

bool recurrent_kernel_launches([[maybe_unused]] int index, [[maybe_unused]] KernelLaunches* out) {
#if WARPALIGN_HAS_CUDA
  return detail::recurrent::kernel_launches_cuda(index, *out);
#else
  return false;
#endif
}

}  // namespace warpalign
