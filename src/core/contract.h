// Checks of a call's contract that every operator's api.cpp makes. Each returns an ok Status, or the first
// violation with the argument's name.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "core/arena.h"
#include "warpalign/execution.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign::detail {

// The status of a CUDA call in a build without nvcc.
inline constexpr Status kNoCudaPath =
    Status::unsupported("execution", "this build of warpalign has no CUDA path");

// The most elements of a tensor: the size of a workspace with a few float64 numbers per element fits into
// int64.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

// Whether the product of the extents is at most kMostElements. Each extent is between 0 and 2^31.
constexpr bool few_enough(std::initializer_list<std::int64_t> extents) {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) {
    if (extent == 0) return true;
  }
  for (const std::int64_t extent : extents) {
    if (product > kMostElements / extent) return false;
    product *= extent;
  }
  return true;
}

inline Status check_execution(const Execution& execution) {
  if (execution.device != Device::kHost && execution.device != Device::kCuda) {
    return Status::invalid("execution", "one of the devices of Device",
                           static_cast<double>(execution.device));
  }
  if (execution.precision < Precision::kHighest || execution.precision > Precision::kMedium) {
    return Status::invalid("precision", "one of the values of Precision",
                           static_cast<double>(execution.precision));
  }
  return {};
}

// The text of what check_aligned() expects, for a power of two up to the largest workspace_alignment(). A
// constant for each, because Status does not own its text.
constexpr const char* alignment_text(std::size_t alignment) {
  constexpr const char* kTexts[] = {
      "an address 0 bytes past a multiple of 1",   "an address 0 bytes past a multiple of 2",
      "an address 0 bytes past a multiple of 4",   "an address 0 bytes past a multiple of 8",
      "an address 0 bytes past a multiple of 16",  "an address 0 bytes past a multiple of 32",
      "an address 0 bytes past a multiple of 64",  "an address 0 bytes past a multiple of 128",
      "an address 0 bytes past a multiple of 256",
  };
  static_assert(workspace_alignment(Device::kCuda) <= 256 && workspace_alignment(Device::kHost) <= 256);
  return kTexts[std::countr_zero(alignment)];
}

// A null pointer is aligned. The value of the status is the address modulo `alignment`, in bytes.
inline Status check_aligned(const char* name, const void* data, std::size_t alignment) {
  if (is_aligned(data, alignment)) return {};
  return Status::invalid(name, alignment_text(alignment),
                         static_cast<double>(reinterpret_cast<std::uintptr_t>(data) % alignment));
}

inline Status check_not_null(const char* name, const void* data) {
  if (data) return {};
  return Status::invalid(name, "a pointer to its data, because the batch is not empty", 0);
}

// Every axis from first_axis on has a stride, where the tensor has data. The value of the status is how many
// of the kRank axes have one.
template <int kRank>
Status check_strides(const char* name, const StridedTensorOf<kRank>& tensor, int first_axis = 0) {
  static_assert(2 <= kRank && kRank <= 4);
  constexpr const char* kExpected[] = {
      "2 strides, one for each axis (write StridedTensorOf<2>::contiguous(data, extents), or set `stride`)",
      "3 strides, one for each axis (write StridedTensor::contiguous(data, extents), or set `stride`)",
      "4 strides, one for each axis (write StridedTensorOf<4>::contiguous(data, extents), or set `stride`)",
  };
  const std::span<const std::int64_t> wanted = std::span(tensor.stride).subspan(first_axis);
  if (!tensor.data || std::ranges::find(wanted, kUnsetStride) == wanted.end()) return {};
  const auto unset = std::ranges::count(tensor.stride, kUnsetStride);
  return Status::invalid(name, kExpected[kRank - 2], static_cast<double>(kRank - unset));
}

// smallest <= lengths[b] <= largest for every b < batch. The lengths are in host memory; nothing is checked
// if they are null. `expected` states the condition in the terms of the operator's header.
inline Status check_lengths(const std::int32_t* lengths, const char* name, const char* expected, int batch,
                            int smallest, int largest) {
  for (int b = 0; lengths && b < batch; ++b) {
    if (lengths[b] < smallest || lengths[b] > largest) return Status::invalid(name, expected, lengths[b], b);
  }
  return {};
}

// Memory that a call writes.
struct WrittenMemory {
  const char* name;
  const void* data;  // null: the output is not requested
  std::size_t bytes;
  std::size_t alignment;
};

// Outputs must not overlap: several threads write them at the same time.
inline Status check_written(std::span<const WrittenMemory> all) {
  for (std::size_t k = 0; k < all.size(); ++k) {
    const WrittenMemory& one = all[k];
    if (Status s = check_aligned(one.name, one.data, one.alignment); !s.ok()) return s;
    const auto begin = reinterpret_cast<std::uintptr_t>(one.data);
    for (const WrittenMemory& other : all.first(one.data ? k : 0)) {
      const auto other_begin = reinterpret_cast<std::uintptr_t>(other.data);
      if (other.data && begin < other_begin + other.bytes && other_begin < begin + one.bytes) {
        const auto shared =
            std::min(begin + one.bytes, other_begin + other.bytes) - std::max(begin, other_begin);
        return Status::invalid(one.name, "0 bytes in common with other outputs", static_cast<double>(shared));
      }
    }
  }
  return {};
}

inline Status check_workspace(Workspace workspace, std::size_t needed, Device device) {
  if (needed == 0) return {};
  if (!workspace.data || workspace.bytes < needed) {
    return Status::invalid("workspace", "as many bytes as its workspace function says",
                           static_cast<double>(workspace.bytes));
  }
  return check_aligned("workspace", workspace.data, workspace_alignment(device));
}

}  // namespace warpalign::detail
