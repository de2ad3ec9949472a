// A graph that a kernel reads. Nobody has looked at its values: what is no edge of a graph is left out.
#pragma once

#include <math_constants.h>

#include <cstdint>

namespace warpalign::detail::transport {

template <class Real>
struct GraphEdges {
  int nodes;
  std::int64_t edges;  // that there is room for
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
  // inf where there is no edge.
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
