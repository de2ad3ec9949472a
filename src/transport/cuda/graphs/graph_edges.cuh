// A graph in a kernel. Its values have not been checked: invalid edges are ignored.
#pragma once

#include <math_constants.h>

#include <cstdint>

namespace warpalign::detail::transport {

template <class Real>
struct GraphEdges {
  int nodes;
  std::int64_t edges;  // number of edges in memory
  const std::int64_t* row_begins;
  const int* neighbors;
  const Real* lengths;

  struct Row {
    std::int64_t begin, end;
  };
  [[nodiscard]] __device__ __forceinline__ Row row(int i) const {
    const std::int64_t begin = held(row_begins[i]), end = held(row_begins[i + 1]);
    return {begin, end};
  }
  // The length of an edge; inf if it is invalid.
  [[nodiscard]] __device__ __forceinline__ double length(std::int64_t e) const {
    const int to = neighbors[e];
    const double length = static_cast<double>(lengths[e]);
    return to >= 0 && to < nodes && length >= 0 ? length : CUDART_INF;
  }

 private:
  [[nodiscard]] __device__ __forceinline__ std::int64_t held(std::int64_t e) const {
    return e < 0 ? 0 : e > edges ? edges : e;
  }
};

}  // namespace warpalign::detail::transport
