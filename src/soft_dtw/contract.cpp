// Checks of a soft-DTW problem that soft_dtw(), soft_dtw_jvp() and soft_dtw_sample() share.
#include "soft_dtw/contract.h"

#include <array>
#include <cmath>
#include <cstdint>

#include "core/contract.h"
#include "soft_dtw/band.h"
#include "soft_dtw/problem.h"

namespace warpalign::detail::soft_dtw {
namespace {

// The largest length: the sum of two lengths, plus the elements that vectors and tiles read past them, fits
// into int32.
constexpr std::int32_t kLongest = 1 << 29;

Status check_gammas(const SoftDtwProblem& p) {
  for (int b = 0; p.gammas && b < p.batch; ++b) {
    const double gamma = gamma_of(p, b);
    if (!(gamma > 0.0) || !std::isfinite(gamma)) return Status::invalid("gammas", "finite and > 0", gamma, b);
  }
  return {};
}

Status check_band(const Band& band) {
  if (band.kind < BandKind::kNone || band.kind > BandKind::kItakura) {
    return Status::invalid("band", "one of the kinds of BandKind", static_cast<double>(band.kind));
  }
  if (band.radius < 0) return Status::invalid("band", "a radius of at least 0", band.radius);
  if (!(band.max_slope >= 1.0) || !std::isfinite(band.max_slope)) {
    return Status::invalid("band", "a finite max_slope of at least 1", band.max_slope);
  }
  return {};
}

// Packed series of one side.
struct PackedSide {
  const char* offsets_name;
  const char* lengths_name;
  const char* steps_name;
  const std::int64_t* offsets;
  const std::int32_t* lengths;
  std::int64_t steps;
};
std::array<PackedSide, 2> packed_sides(const SoftDtwProblem& p) {
  return {{{"x_offsets", "x_lengths", "x_steps", p.x_offsets, p.x_lengths, p.x_steps},
           {"y_offsets", "y_lengths", "y_steps", p.y_offsets, p.y_lengths, p.y_steps}}};
}

Status check_packed_steps(const SoftDtwProblem& p) {
  for (const PackedSide& side : packed_sides(p)) {
    if (!side.offsets) continue;
    if (side.steps < 1 || !few_enough({side.steps, p.dim})) {
      return Status::invalid(side.steps_name, "at least 1 step, and at most 2^48 elements of all steps",
                             static_cast<double>(side.steps));
    }
  }
  return {};
}

// The lengths have been checked.
Status check_packed(const SoftDtwProblem& p, Device device) {
  for (const PackedSide& side : packed_sides(p)) {
    if (!side.offsets) continue;
    if (p.cost.data) return Status::invalid(side.offsets_name, "null with a cost matrix", 1);
    if (p.x_mask || p.y_mask)
      return Status::invalid(side.offsets_name, "null with masks of missing steps", 1);
    if (is_cosine(p)) return Status::unsupported(side.offsets_name, "the cosine takes padded series");
    if (!side.lengths) return Status::invalid(side.lengths_name, "the lengths of packed series", 0);
    Status s = check_aligned(side.offsets_name, side.offsets, sizeof(std::int64_t));
    if (!s.ok()) return s;
    for (int b = 0; device == Device::kHost && b < p.batch; ++b) {
      if (side.offsets[b] >= 0 && side.offsets[b] <= side.steps - side.lengths[b]) continue;
      return Status::invalid(side.offsets_name, "a first step whose series ends within all steps",
                             static_cast<double>(side.offsets[b]), b);
    }
  }
  return {};
}

// An error if no path exists. Checked if the lengths are known on the host.
Status check_path(const SoftDtwProblem& p, Device device) {
  if (p.band.kind == BandKind::kNone || (device == Device::kCuda && (p.x_lengths || p.y_lengths))) return {};
  const bool ragged = p.x_lengths || p.y_lengths;
  for (int b = 0; b < (ragged ? p.batch : 1); ++b) {
    const int n = p.x_lengths ? p.x_lengths[b] : p.n;
    const int m = p.y_lengths ? p.y_lengths[b] : p.m;
    if (band_holds_path(p.band, n, m)) continue;
    const bool slope = p.band.kind == BandKind::kItakura;
    return Status::invalid("band",
                           slope ? "a max_slope that leaves a path between the pair's ends"
                                 : "a radius that leaves a path between the pair's ends",
                           slope ? p.band.max_slope : p.band.radius, ragged ? b : -1);
  }
  return {};
}

}  // namespace

Status check_extents(const SoftDtwProblem& p) {
  if (p.batch < 0) return Status::invalid("batch", "at least 0", p.batch);
  if (p.n < 1) return Status::invalid("n", "at least 1 time step in x", p.n);
  if (p.m < 1) return Status::invalid("m", "at least 1 time step in y", p.m);
  if (p.n > kLongest) return Status::invalid("n", "at most 2^29 time steps in x", p.n);
  if (p.m > kLongest) return Status::invalid("m", "at most 2^29 time steps in y", p.m);
  if (!few_enough({p.batch, p.n, p.m})) return Status::invalid("m", "at most 2^48 cells, B N M", p.m);
  if (p.cost.data) return {};
  if (p.batch > 0 && p.dim < 1) return Status::invalid("dim", "at least 1 feature", p.dim);
  if (p.dim > kLongest) return Status::invalid("dim", "at most 2^29 features", p.dim);
  if (Status s = check_packed_steps(p); !s.ok()) return s;
  if (!few_enough({p.batch, p.n, p.dim}) || !few_enough({p.batch, p.m, p.dim})) {
    return Status::invalid("dim", "at most 2^48 elements of x, B N D, and of y, B M D", p.dim);
  }
  return {};
}

Status check_settings(const SoftDtwProblem& p, const Execution& execution) {
  if (Status s = check_execution(execution); !s.ok()) return s;
  const bool is_half = p.dtype == DType::kFloat16 || p.dtype == DType::kBFloat16;
  if (is_half && (execution.device != Device::kCuda || p.cost.data)) {
    return Status::unsupported("dtype",
                               "half types are taken for x and y on CUDA; convert others to float32 first");
  }
  if (!is_half && p.dtype != DType::kFloat32 && p.dtype != DType::kFloat64) {
    return Status::invalid("dtype", "one of the types of DType", static_cast<double>(p.dtype));
  }
  if (Status s = check_extents(p); !s.ok()) return s;
  if (!(p.gamma >= 0.0) || !std::isfinite(p.gamma))
    return Status::invalid("gamma", "finite and >= 0", p.gamma);
  if (!(p.step_penalty >= 0.0) || !std::isfinite(p.step_penalty)) {
    return Status::invalid("step_penalty", "finite and >= 0", p.step_penalty);
  }
  if (p.cost_kind < CostKind::kSquaredEuclidean || p.cost_kind > CostKind::kHuber) {
    return Status::invalid("cost_kind", "one of the kinds of CostKind", static_cast<double>(p.cost_kind));
  }
  if (Status s = check_band(p.band); !s.ok()) return s;
  if (p.subsequence && p.band.kind != BandKind::kNone) {
    return Status::invalid("band", "none with subsequence", static_cast<double>(p.band.kind));
  }
  return {};
}

Status check_data(const SoftDtwProblem& p, const Execution& execution) {
  if (p.cost.data) {
    if (p.x.data || p.y.data) return Status::invalid("cost", "either cost, or x and y, but not both", 1);
    if (p.dim != 0) return Status::invalid("dim", "0 with a cost matrix, which has no features", p.dim);
    if (p.x_mask) return Status::invalid("x_mask", "null with a cost matrix, which has no x", 1);
    if (p.y_mask) return Status::invalid("y_mask", "null with a cost matrix, which has no y", 1);
  } else {
    if (Status s = check_not_null("x", p.x.data); !s.ok()) return s;
    if (Status s = check_not_null("y", p.y.data); !s.ok()) return s;
  }
  if (execution.device == Device::kHost) {  // lengths in device memory are not read here: kernels clamp them
    Status s = check_lengths(p.x_lengths, "x_lengths", "between 1 and N", p.batch, 1, p.n);
    if (s.ok()) s = check_lengths(p.y_lengths, "y_lengths", "between 1 and M", p.batch, 1, p.m);
    if (s.ok()) s = check_gammas(p);
    if (!s.ok()) return s;
  }
  if (Status s = check_packed(p, execution.device); !s.ok()) return s;
  return check_path(p, execution.device);
}

Status check_inputs(const SoftDtwProblem& p, const SoftDtwTangents& tangents) {
  const struct {
    const char* name;
    const StridedTensor& tensor;
  } tensors[] = {{"x", p.x},
                 {"y", p.y},
                 {"cost", p.cost},
                 {"tangents.x", tangents.x},
                 {"tangents.y", tangents.y},
                 {"tangents.cost", tangents.cost}};
  for (const auto& [name, tensor] : tensors) {
    if (Status s = check_strides(name, tensor); !s.ok()) return s;
  }
  const struct {
    const char* name;
    const void* data;
    std::size_t alignment;
  } inputs[] = {
      {"x", p.x.data, size_of(p.dtype)},
      {"y", p.y.data, size_of(p.dtype)},
      {"cost", p.cost.data, size_of(p.dtype)},
      {"gammas", p.gammas, result_size(p)},
      {"x_lengths", p.x_lengths, sizeof(int)},
      {"y_lengths", p.y_lengths, sizeof(int)},
      {"tangents", tangents.x.data, size_of(p.dtype)},
      {"tangents", tangents.y.data, size_of(p.dtype)},
      {"tangents", tangents.cost.data, size_of(p.dtype)},
  };
  for (const auto& input : inputs) {
    if (Status s = check_aligned(input.name, input.data, input.alignment); !s.ok()) return s;
  }
  return {};
}

}  // namespace warpalign::detail::soft_dtw
