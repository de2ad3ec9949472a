// A panel: the costs of some pairs in global memory. The sweeps read costs from it, and the reverse sweep
// overwrites the costs with E.
//
// Cells are stored in the order of a sweep. A strip has 64 columns, two for each lane of its warp. In line l,
// lane u is at row l - u, so that the cells of a step are one line of 64 neighbouring values:
//   cell (i, 64 k + c)   is at   (k lines + i + c / 2) 64 + c,   0 <= c < 64.
// A sweep from the last step of both series reads the same lines, from the last one to the first, with its
// lanes in reverse order. Rows before 0 and after n - 1, which occur in a strip's first and last 31 lines,
// have cost 0. So do columns after m - 1.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/launch/device.h"
#include "warpalign/status.h"

namespace warpalign::detail::soft_dtw {

constexpr int kPanelColumns = 64;      // columns per strip
constexpr int kPanelRows = 64;         // rows of a tile of costs, which a block owns
constexpr int kPanelFurtherRows = 31;  // rows by which a strip's last lane is later than its first
// The fewest features for products on matrix units: with fewer, differences are faster.
constexpr int kFewestMultipliedFeatures = 17;
constexpr int kMostProductBytes = 80 * 1024;  // shared memory of a block that multiplies on the matrix units

// The panel of pairs of padded lengths n and m.
struct Panel {
  float* cells;  // (pairs, strips, lines, 64)
  int* range;    // (pairs, strips, tiles): the largest |cost| of each tile's true cells, as bits
  int strips;
  int lines;  // lines per strip
  int tiles;  // tiles of kPanelRows rows each

  [[nodiscard]] constexpr std::int64_t strip_cells() const {
    return static_cast<std::int64_t>(lines) * kPanelColumns;
  }
  [[nodiscard]] constexpr std::int64_t pair_cells() const { return strips * strip_cells(); }
  [[nodiscard]] constexpr std::size_t cell_bytes(int pairs) const {
    return cuda::aligned(sizeof(float) * static_cast<std::size_t>(pairs) * pair_cells());
  }
  [[nodiscard]] constexpr std::size_t bytes(int pairs) const {
    return cell_bytes(pairs) + cuda::aligned(sizeof(int) * static_cast<std::size_t>(pairs) * strips * tiles);
  }
};

// Blocks that make gradients by differences: 64 steps of a series and 64 features each.
constexpr int kPanelFeatures = 64;
struct GradientBlocks {
  int features;  // blocks of 64 features
  int x;         // blocks of a pair's grad_x, for each block of features; 0: no grad_x
  int y;
  // The blocks of a pair: first those of x, then those of y.
  [[nodiscard]] constexpr int per_pair() const { return (x + y) * features; }
};
constexpr GradientBlocks gradient_blocks(int n, int m, int dim, bool of_x, bool of_y) {
  return {cuda::div_up(dim, kPanelFeatures), of_x ? cuda::div_up(n, kPanelRows) : 0,
          of_y ? cuda::div_up(m, kPanelRows) : 0};
}

constexpr Panel panel_of(int n, int m) {
  return {nullptr, nullptr, cuda::div_up(m, kPanelColumns), n + kPanelFurtherRows,
          cuda::div_up(n, kPanelRows)};
}

struct Params;  // params.cuh

// All take p.batch pairs of p.n rows and p.m columns, in p.panel.
//
// Makes the panel's costs: squared, absolute or Huber distances of x and y, or p.cost. Costs of missing steps
// are 0. Cells outside a band may be left undefined.
Status make_panel(const Params& p, cudaStream_t stream);
// From E in the panel: grad_x[i] = 2 sum_j E[i,j] (x[i] - y[j]), grad_y[j] = 2 sum_i E[i,j] (y[j] - x[i]), or
// the same with the metric's slopes, whichever is not null; 0 after the true lengths and for missing steps.
// With p.gradients_by_products and p.cancelled, blocks whose products cancelled are computed again from
// differences.
Status make_panel_gradients(const Params& p, cudaStream_t stream);
// Copies E to p.alignment, (pairs, n, m); 0 after the true lengths and outside a band.
Status copy_panel_alignment(const Params& p, cudaStream_t stream);
// make_panel() of a cost matrix, and copy_panel_alignment(), without a band.
Status copy_matrix_to_panel(const Params& p, cudaStream_t stream);
Status copy_panel_to_alignment(const Params& p, cudaStream_t stream);

}  // namespace warpalign::detail::soft_dtw
