// The functions of warpalign/gromov_anchors.h: they check the contract, then hand over to a path.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "core/contract.h"
#include "cpu/describe.h"
#include "transport/anchors.h"

namespace warpalign {
namespace {

using namespace detail;             // NOLINT: the checks of every operator
using namespace detail::transport;  // NOLINT: the entry points of this one

constexpr std::int32_t kMostPoints = 1 << 29, kMostAnchors = 1 << 16, kMostCoordinates = 128,
                       kMostFeatures = 1 << 20;

Status check_range(const char* name, const char* expected, std::int32_t v, std::int32_t least,
                   std::int32_t most) {
  return v < least || v > most ? Status::invalid(name, expected, v) : Status{};
}

Status check_device(const Execution& execution) {
  if (Status s = check_execution(execution); !s.ok()) return s;
  if (execution.device == Device::kHost) {
    return Status::unsupported("execution", "this function runs on CUDA alone");
  }
#if WARPALIGN_HAS_CUDA
  return {};
#else
  return kNoCudaPath;
#endif
}

Status check_arrays(std::initializer_list<std::pair<const char*, const void*>> arrays, std::size_t size) {
  for (const auto& [name, data] : arrays) {
    if (Status s = check_not_null(name, data); !s.ok()) return s;
    if (Status s = check_aligned(name, data, size); !s.ok()) return s;
  }
  return {};
}

Status check_positive(const char* name, double v) {
  return v > 0 && std::isfinite(v) ? Status{} : Status::invalid(name, "a finite number > 0", v);
}

bool has_sizes(const AnchorColumns& p) {
  return p.m >= 1 && p.m <= kMostPoints && p.count >= 0 && p.count <= kMostAnchors;
}

}  // namespace

std::size_t anchor_columns_workspace_bytes(const AnchorColumns& p) {
  return has_sizes(p) ? sizeof(std::uint64_t) * p.count * anchor_parts(p.m) : 0;
}

Status anchor_columns(const AnchorColumns& p, Workspace workspace, const Execution& execution) {
  if (Status s = check_device(execution); !s.ok()) return s;
  if (Status s = check_range("n", "1 to 2^29 points", p.n, 1, kMostPoints); !s.ok()) return s;
  if (Status s = check_range("m", "1 to 2^29 points", p.m, 1, kMostPoints); !s.ok()) return s;
  if (Status s = check_range("dim", "1 to 128 coordinates", p.dim, 1, kMostCoordinates); !s.ok()) return s;
  if (Status s = check_range("count", "0 to 2^16 anchors", p.count, 0, kMostAnchors); !s.ok()) return s;
  if (Status s = check_positive("cost_scale", p.cost_scale); !s.ok()) return s;
  if (Status s = check_positive("epsilon", p.epsilon); !s.ok()) return s;
  if (p.count == 0) return {};
  if (Status s = check_arrays({{"x", p.x}, {"y", p.y}, {"g", p.g}}, sizeof(float)); !s.ok()) return s;
  if (Status s = check_aligned("b", p.b, sizeof(float)); !s.ok()) return s;
  if (Status s = check_arrays({{"rows", p.rows}, {"columns", p.columns}}, sizeof(std::int64_t)); !s.ok()) {
    return s;
  }
  const std::size_t needed = anchor_columns_workspace_bytes(p);
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  const WrittenMemory places[] = {
      {"columns", p.columns, sizeof(std::int64_t) * p.count, sizeof(std::int64_t)},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = check_written(places); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  return anchor_columns_cuda(p, workspace, execution.stream);
#else
  return {};
#endif
}

Status anchor_coordinates(const AnchorCoordinates& p, const Execution& execution) {
  if (Status s = check_device(execution); !s.ok()) return s;
  if (Status s = check_range("n", "1 to 2^29 points", p.n, 1, kMostPoints); !s.ok()) return s;
  if (Status s = check_range("dim", "1 to 2^20 coordinates", p.dim, 1, kMostFeatures); !s.ok()) return s;
  if (Status s = check_range("count", "1 to 2^16 anchors", p.count, 1, kMostAnchors); !s.ok()) return s;
  if (Status s = check_range("distance", "one of the values of AnchorDistance",
                             static_cast<std::int32_t>(p.distance), 0,
                             static_cast<std::int32_t>(AnchorDistance::kSquaredEuclidean));
      !s.ok()) {
    return s;
  }
  const auto arrays = {std::pair<const char*, const void*>{"points", p.points},
                       {"unit", p.unit},
                       {"coordinates", p.coordinates}};
  if (Status s = check_arrays(arrays, sizeof(float)); !s.ok()) return s;
  if (Status s = check_arrays({{"anchors", p.anchors}}, sizeof(std::int64_t)); !s.ok()) return s;
#if WARPALIGN_HAS_CUDA
  return anchor_coordinates_cuda(p, execution.stream);
#else
  return {};
#endif
}

namespace {

bool has_sizes(const LargestDifferences& p) {
  return p.n >= 0 && p.n <= kMostPoints && p.m >= 0 && p.m <= kMostPoints && p.dim >= 1 &&
         p.dim <= kMostFeatures && (p.dtype == DType::kFloat32 || p.dtype == DType::kFloat64);
}

}  // namespace

std::size_t largest_differences_workspace_bytes(const LargestDifferences& p, const Execution& execution) {
  return has_sizes(p) ? largest_differences_cpu_workspace_bytes(p, execution) : 0;
}

Status largest_differences(const LargestDifferences& p, Workspace workspace, const Execution& execution) {
  if (Status s = check_execution(execution); !s.ok()) return s;
  if (execution.device != Device::kHost) {
    return Status::unsupported("execution", "this function runs on a CPU alone");
  }
  if (p.dtype != DType::kFloat32 && p.dtype != DType::kFloat64) {
    return Status::invalid("dtype", "kFloat32 or kFloat64", static_cast<double>(p.dtype));
  }
  if (Status s = check_range("n", "0 to 2^29 points", p.n, 0, kMostPoints); !s.ok()) return s;
  if (Status s = check_range("m", "0 to 2^29 points", p.m, 0, kMostPoints); !s.ok()) return s;
  if (Status s = check_range("dim", "1 to 2^20 coordinates", p.dim, 1, kMostFeatures); !s.ok()) return s;
  if (p.n == 0 || p.m == 0) return {};
  const std::size_t size = size_of(p.dtype);
  if (Status s = check_arrays({{"x", p.x}, {"y", p.y}, {"distances", p.distances}}, size); !s.ok()) return s;
  const std::size_t needed = largest_differences_workspace_bytes(p, execution);
  if (Status s = check_workspace(workspace, needed, execution.device); !s.ok()) return s;
  const WrittenMemory places[] = {
      {"distances", p.distances, size * p.n * p.m, size},
      {"workspace", workspace.data, needed, 1},
  };
  if (Status s = check_written(places); !s.ok()) return s;
  if (cpu::is_described("largest_differences", needed, execution)) return {};
  return largest_differences_cpu(p, workspace, execution);
}

}  // namespace warpalign
