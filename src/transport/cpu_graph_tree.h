// A k-d tree over points in float64, for exact searches of nearest points.
//
// The tree halves its points at the median of the widest axis until a leaf has at most kLeafPoints. Nodes
// are numbered as in a heap: the children of node v are 2 v + 1 and 2 v + 2. Every leaf is on the last level.
// A leaf's coordinates are contiguous by axis, so that distances are computed by vectors. In many dimensions
// a search visits nearly every leaf, and costs as much as comparing all points.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/arena.h"
#include "transport/cpu_kernel.h"

namespace warpalign::detail::transport {

constexpr int kLeafPoints = 24;

// A point that a search has found. The order breaks ties by index.
struct NearPoint {
  double square;  // square of the distance
  std::int32_t index;

  bool operator<(const NearPoint& other) const {
    return square < other.square || (square == other.square && index < other.index);
  }
};

// The k nearest points of one search, in order, in the caller's memory.
class NearestPoints {
 public:
  NearestPoints(NearPoint* memory, int k) : points_(memory), k_(k) {}

  void consider(const NearPoint& point) {
    if (count_ == k_ && !(point < points_[count_ - 1])) return;
    int at = count_ < k_ ? count_++ : count_ - 1;
    for (; at > 0 && point < points_[at - 1]; --at) points_[at] = points_[at - 1];
    points_[at] = point;
  }
  // The squared distance beyond which points are ignored.
  [[nodiscard]] double bound() const {
    return count_ < k_ ? std::numeric_limits<double>::infinity() : points_[k_ - 1].square;
  }
  [[nodiscard]] int count() const { return count_; }
  const NearPoint& operator[](int at) const { return points_[at]; }

 private:
  NearPoint* points_;
  int k_;
  int count_ = 0;
};

class PointTree {
 public:
  // One search's memory.
  struct Scratch {
    double* point;    // (dim)
    double* squares;  // (a leaf's points, padded)
  };

  PointTree(Arena& arena, int points, int dim) : points_(points), dim_(dim) {
    while ((points - 1) >> levels_ >= kLeafPoints) ++levels_;  // the largest leaf has ceil(points / 2^levels)
    const std::size_t nodes = node_count();
    coordinates_ = arena.take<double>(static_cast<std::size_t>(dim) * stride());
    order_ = arena.take<std::int32_t>(points);
    low_ = arena.take<double>(nodes * dim);
    high_ = arena.take<double>(nodes * dim);
  }

  static Scratch take_scratch(Arena& arena, int dim) {
    return {arena.take<double>(dim), arena.take<double>(kLeafPoints + 2 * kCpuPad)};
  }

  // value(i, d) is coordinate d of point i.
  template <class Value>
  void build(const Value& value) {
    for (int i = 0; i < points_; ++i) order_[i] = i;
    divide(0, 0, points_, 0, value);
    for (int at = 0; at < points_; ++at) {
      for (int d = 0; d < dim_; ++d) coordinates_[d * stride() + at] = value(order_[at], d);
    }
    for (int d = 0; d < dim_; ++d) std::fill_n(coordinates_ + d * stride() + points_, 2 * kCpuPad, 0.0);
  }

  [[nodiscard]] int node_count() const { return (2 << levels_) - 1; }
  // The point at a place of the tree's order, in which neighbouring places have points that are near each
  // other.
  [[nodiscard]] std::int32_t point_at(int place) const { return order_[place]; }

  // Calls report(square, index) for the points of leaves, nearest leaves first. Skips nodes that are farther
  // than bound(), or for which skips(node) is true.
  template <class Bound, class Skips, class Report>
  void search(int place, const CpuKernelsOf<double>& kernels, const Scratch& scratch, const Bound& bound,
              const Skips& skips, const Report& report) const {
    for (int d = 0; d < dim_; ++d) scratch.point[d] = coordinates_[d * stride() + place];
    struct Visit {
      int node, begin, end, level;
      double square;
    } stack[64];
    int depth = 0;
    stack[depth++] = {0, 0, points_, 0, 0.0};
    while (depth > 0) {
      const Visit at = stack[--depth];
      // The margin covers rounding: the box's distance and those of points are sums in different orders.
      if (at.square * (1 - 1e-12) > bound() || skips(at.node)) continue;
      if (at.level == levels_) {
        scan(at.begin, at.end, kernels, scratch, report);
        continue;
      }
      const int middle = at.begin + (at.end - at.begin) / 2;
      const Visit left{2 * at.node + 1, at.begin, middle, at.level + 1,
                       square_to_box(2 * at.node + 1, scratch)};
      const Visit right{2 * at.node + 2, middle, at.end, at.level + 1,
                        square_to_box(2 * at.node + 2, scratch)};
      const bool left_first = left.square <= right.square;
      stack[depth++] = left_first ? right : left;
      stack[depth++] = left_first ? left : right;
    }
  }

  // label_of_node[v] = the label of all points under v, or -1 if they differ. label(i) is the label of point
  // i.
  template <class Label>
  void label_nodes(std::int32_t* label_of_node, const Label& label) const {
    label_node(label_of_node, label, 0, 0, points_, 0);
  }

 private:
  [[nodiscard]] std::ptrdiff_t stride() const { return points_ + 2 * kCpuPad; }

  template <class Value>
  void divide(int node, int begin, int end, int level, const Value& value) {
    double* const low = low_ + static_cast<std::size_t>(node) * dim_;
    double* const high = high_ + static_cast<std::size_t>(node) * dim_;
    int widest = 0;
    for (int d = 0; d < dim_; ++d) {
      low[d] = std::numeric_limits<double>::infinity();
      high[d] = -low[d];
      for (int at = begin; at < end; ++at) {
        const double v = value(order_[at], d);
        low[d] = std::min(low[d], v);
        high[d] = std::max(high[d], v);
      }
      if (high[d] - low[d] > high[widest] - low[widest]) widest = d;
    }
    if (level == levels_) return;
    const int middle = begin + (end - begin) / 2;
    std::nth_element(order_ + begin, order_ + middle, order_ + end, [&](std::int32_t i, std::int32_t j) {
      const double v = value(i, widest), w = value(j, widest);
      return v < w || (v == w && i < j);
    });
    divide(2 * node + 1, begin, middle, level + 1, value);
    divide(2 * node + 2, middle, end, level + 1, value);
  }

  [[nodiscard]] double square_to_box(int node, const Scratch& scratch) const {
    const double* const low = low_ + static_cast<std::size_t>(node) * dim_;
    const double* const high = high_ + static_cast<std::size_t>(node) * dim_;
    double square = 0;
    for (int d = 0; d < dim_; ++d) {
      const double v = scratch.point[d];
      const double outside = std::max({low[d] - v, v - high[d], 0.0});
      square += outside * outside;
    }
    return square;
  }

  template <class Report>
  void scan(int begin, int end, const CpuKernelsOf<double>& kernels, const Scratch& scratch,
            const Report& report) const {
    if (begin == end) return;
    kernels.costs(
        {CostKind::kSquaredEuclidean, scratch.point, coordinates_ + begin, stride(), dim_, end - begin}, 1,
        scratch.squares, 0);
    for (int at = begin; at < end; ++at) report(scratch.squares[at - begin], order_[at]);
  }

  template <class Label>
  std::int32_t label_node(std::int32_t* labels, const Label& label, int node, int begin, int end,
                          int level) const {
    std::int32_t common = begin < end ? label(order_[begin]) : -1;
    if (level == levels_) {
      for (int at = begin; at < end; ++at) common = label(order_[at]) == common ? common : -1;
    } else {
      const int middle = begin + (end - begin) / 2;
      const std::int32_t left = label_node(labels, label, 2 * node + 1, begin, middle, level + 1);
      const std::int32_t right = label_node(labels, label, 2 * node + 2, middle, end, level + 1);
      common = left == right ? left : -1;
    }
    return labels[node] = common;
  }

  int points_;
  int dim_;
  int levels_ = 0;
  double* coordinates_;  // (dim, stride)
  std::int32_t* order_;  // (points)
  double* low_;          // (nodes, dim): the smallest coordinates under a node
  double* high_;
};

}  // namespace warpalign::detail::transport
