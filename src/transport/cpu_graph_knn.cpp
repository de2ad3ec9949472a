// The CPU path of knn_graph(): nearest points, the union of their edges, and edges that join components.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/visit_dtype.h"
#include "transport/cpu_graph.h"
#include "transport/cpu_graph_tree.h"
#include "transport/cpu_parallel.h"
#include "transport/cpu_problem.h"
#include "transport/graph.h"

namespace warpalign::detail::transport {
namespace {

constexpr int kPointsOfBlock = 256;

// An edge that joins two components. The order is the same from both of its ends.
struct Joint {
  double square;
  std::int32_t low;
  std::int32_t high;

  bool operator<(const Joint& other) const {
    if (square != other.square) return square < other.square;
    return low != other.low ? low < other.low : high < other.high;
  }
};

class KnnGraph {
 public:
  KnnGraph(Arena& arena, const KnnProblem& p, int threads) : p_(p), tree_(arena, p.n, p.dim) {
    const std::size_t n = p.n, all = n * p.k;
    near_ = arena.take<NearPoint>(all);
    memory_of_search_ = arena.take<PointTree::Scratch>(threads);
    for (int k = 0; k < threads; ++k) {
      const PointTree::Scratch own = PointTree::take_scratch(arena, p.dim);
      if (memory_of_search_) memory_of_search_[k] = own;
    }
    if (!p.joins_components) return;
    parent_ = arena.take<std::int32_t>(n);
    label_ = arena.take<std::int32_t>(n);
    label_of_node_ = arena.take<std::int32_t>(tree_.node_count());
    nearest_outside_ = arena.take<NearPoint>(n);
    best_ = arena.take<double>(n);
    shortest_ = arena.take<Joint>(n);
    joints_ = arena.take<Joint>(n);
  }

  template <class Real>
  void run(const KnnOutputs& out, const BlockTeam& team) {
    team_ = &team;
    kernels_ = &selected_kernels().float64;
    const Real* const points = static_cast<const Real*>(p_.x.data);
    tree_.build(
        [&](int i, int d) { return static_cast<double>(points[i * p_.x.stride[0] + d * p_.x.stride[1]]); });
    find_nearest();
    joint_count_ = 0;
    if (p_.joins_components) join_components();
    write(out.row_begins, out.neighbors, static_cast<Real*>(out.lengths));
  }

 private:
  NearPoint* near(int i) const { return near_ + static_cast<std::ptrdiff_t>(i) * p_.k; }

  template <class Body>
  void for_places(const Body& body) const {
    team_->run((p_.n + kPointsOfBlock - 1) / kPointsOfBlock, [&](int block, int worker) {
      const int end = std::min((block + 1) * kPointsOfBlock, p_.n);
      for (int place = block * kPointsOfBlock; place < end; ++place) body(place, memory_of_search_[worker]);
    });
  }

  void find_nearest() const {
    if (p_.k == 0) return;
    for_places([&](int place, const PointTree::Scratch& own) {
      const int self = tree_.point_at(place);
      NearestPoints nearest(near(self), p_.k);
      tree_.search(
          place, *kernels_, own, [&] { return nearest.bound(); }, [](int) { return false; },
          [&](double square, std::int32_t index) {
            if (index != self) nearest.consider({square, index});
          });
    });
  }

  // Boruvka's algorithm: adds every component's shortest edge to another one, until there is one component.
  void join_components() {
    NodeSets sets(parent_, p_.n);
    for (int i = 0; i < p_.n; ++i) {
      for (int at = 0; at < p_.k; ++at) sets.join(i, near(i)[at].index);
    }
    for (;;) {
      int roots = 0;
      for (int i = 0; i < p_.n; ++i) roots += (label_[i] = sets.root_of(i)) == i;
      if (roots == 1) return;
      find_nearest_outside();
      constexpr double kInf = std::numeric_limits<double>::infinity();
      std::fill_n(shortest_, p_.n, Joint{kInf, 0, 0});
      for (int i = 0; i < p_.n; ++i) {
        const NearPoint& to = nearest_outside_[i];
        if (to.index < 0) continue;
        const Joint joint{to.square, std::min(i, to.index), std::max(i, to.index)};
        shortest_[label_[i]] = std::min(shortest_[label_[i]], joint);
      }
      for (int i = 0; i < p_.n; ++i) {
        if (label_[i] == i && sets.join(shortest_[i].low, shortest_[i].high)) {
          joints_[joint_count_++] = shortest_[i];
        }
      }
    }
  }

  // Finds, for each point that may have its component's shortest edge, the nearest point outside the
  // component. Edges that other threads have found for a component are bounds that shorten the search;
  // results do not depend on them.
  void find_nearest_outside() const {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    tree_.label_nodes(label_of_node_, [&](int i) { return label_[i]; });
    std::fill_n(best_, p_.n, kInf);
    for_places([&](int place, const PointTree::Scratch& own) {
      const int self = tree_.point_at(place), label = label_[self];
      const std::atomic_ref<double> best(best_[label]);
      NearPoint nearest{kInf, -1};
      tree_.search(
          place, *kernels_, own,
          [&] { return std::min(nearest.square, best.load(std::memory_order_relaxed)); },
          [&](int node) { return label_of_node_[node] == label; },
          [&](double square, std::int32_t index) {
            if (label_[index] != label) nearest = std::min(nearest, NearPoint{square, index});
          });
      nearest_outside_[self] = nearest;
      double known = best.load(std::memory_order_relaxed);
      while (nearest.square < known && !best.compare_exchange_weak(known, nearest.square)) {
      }
    });
  }

  // Whether j is among the points nearest to i.
  [[nodiscard]] bool is_near(int i, int j) const {
    return std::any_of(near(i), near(i) + p_.k, [&](const NearPoint& point) { return point.index == j; });
  }

  template <class Real>
  void write(std::int64_t* begins, std::int32_t* neighbors, Real* lengths) const {
    const auto for_edges = [&](const auto& edge) {
      for (int i = 0; i < p_.n; ++i) {
        for (int at = 0; at < p_.k; ++at) {
          const NearPoint& to = near(i)[at];
          edge(i, to.index, to.square);
          if (!is_near(to.index, i)) edge(to.index, i, to.square);
        }
      }
      for (int k = 0; k < joint_count_; ++k) {
        edge(joints_[k].low, joints_[k].high, joints_[k].square);
        edge(joints_[k].high, joints_[k].low, joints_[k].square);
      }
    };
    std::fill_n(begins, p_.n + 1, 0);
    for_edges([&](int i, int, double) { ++begins[i + 1]; });
    for (int i = 0; i < p_.n; ++i) begins[i + 1] += begins[i];
    // Rows are filled from their begin, which is incremented: afterwards begins[i] is the end of row i, which
    // is the begin of the next row.
    for_edges([&](int i, int j, double square) {
      std::int64_t at = begins[i]++;
      neighbors[at] = j;
      lengths[at] = static_cast<Real>(std::sqrt(square));
    });
    for (int i = p_.n; i > 0; --i) begins[i] = begins[i - 1];
    begins[0] = 0;
    for (int i = 0; i < p_.n; ++i) sort_row(neighbors, lengths, begins[i], begins[i + 1]);
  }

  // Insertion sort: rows are short, and the edges of long rows are nearly sorted.
  template <class Real>
  static void sort_row(std::int32_t* neighbors, Real* lengths, std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin + 1; k < end; ++k) {
      const std::int32_t neighbor = neighbors[k];
      const Real length = lengths[k];
      std::int64_t at = k;
      for (; at > begin && neighbors[at - 1] > neighbor; --at) {
        neighbors[at] = neighbors[at - 1];
        lengths[at] = lengths[at - 1];
      }
      neighbors[at] = neighbor;
      lengths[at] = length;
    }
  }

  const KnnProblem& p_;
  PointTree tree_;
  NearPoint* near_ = nullptr;  // (n, k)
  PointTree::Scratch* memory_of_search_ = nullptr;
  std::int32_t* parent_ = nullptr;
  std::int32_t* label_ = nullptr;          // (n): the component's smallest point
  std::int32_t* label_of_node_ = nullptr;  // (tree nodes); -1: several components
  NearPoint* nearest_outside_ = nullptr;   // (n), index -1: none that may be the shortest
  double* best_ = nullptr;                 // by label: the shortest edge so far
  Joint* shortest_ = nullptr;              // by label
  Joint* joints_ = nullptr;
  int joint_count_ = 0;
  const BlockTeam* team_ = nullptr;
  const CpuKernelsOf<double>* kernels_ = nullptr;
};

}  // namespace

std::size_t knn_graph_cpu_workspace_bytes(const KnnProblem& p, const Execution& execution) {
  Arena arena;
  const KnnGraph graph(arena, p, threads_of(execution));
  return arena.used();
}

Status knn_graph_cpu(const KnnProblem& p, const KnnOutputs& out, Workspace workspace,
                     const Execution& execution) {
  const int threads = threads_of(execution);
  Arena arena(workspace.data);
  KnnGraph graph(arena, p, threads);
  visit_float32_float64(p.dtype, [&](auto type) {
    graph.run<typename decltype(type)::Type>(out, BlockTeam(execution.parallel_for, threads));
  });
  return {};
}

}  // namespace warpalign::detail::transport
