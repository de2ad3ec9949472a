// The CPU paths of shortest_paths(), farthest_landmarks() and connected_components().
//
// A search corrects labels by buckets of equal width: the nodes of the nearest bucket hand their distances
// on, in any order, until it is empty. A node is in at most one bucket, a doubly linked list, so that memory
// is bounded. The width is half the mean length of an edge. Buckets are a ring: no tentative distance is
// farther than the longest edge from the bucket at work.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/arena.h"
#include "core/visit_dtype.h"
#include "transport/cpu_graph.h"
#include "transport/cpu_parallel.h"
#include "transport/graph.h"

namespace warpalign::detail::transport {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int kMostBuckets = 4096;

// How wide buckets are, and how many the ring has.
struct Buckets {
  double per_length = 1;   // 1 / width
  std::int32_t count = 4;  // a power of two

  template <class Real>
  static Buckets of(const GraphView& graph) {
    const Real* const lengths = static_cast<const Real*>(graph.lengths);
    const std::int64_t edges = graph.row_begins[graph.nodes];
    double sum = 0, longest = 0;
    std::int64_t finite = 0;
    for (std::int64_t e = 0; e < edges; ++e) {
      const double length = static_cast<double>(lengths[e]);
      if (std::isinf(length)) continue;
      sum += length;
      longest = std::max(longest, length);
      ++finite;
    }
    if (longest == 0) return {};
    const double width = std::max(0.5 * sum / static_cast<double>(finite), longest / (kMostBuckets - 4));
    return {1 / width,
            static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(longest / width) + 3))};
  }
};

// What a search knows of a node, together because edges lead to nodes anywhere in memory.
struct Node {
  double distance;
  std::int64_t bucket;  // -1: in none
  std::int32_t next;    // in the bucket; -1: the last
  std::int32_t before;  // -1: the first
};

// The memory of one worker's searches.
struct Search {
  Node* nodes;          // (N)
  std::int32_t* heads;  // (kMostBuckets): -1: empty

  Search(Arena& arena, int count)
      : nodes(arena.take<Node>(count)), heads(arena.take<std::int32_t>(kMostBuckets)) {}

  // nodes[i].distance = the length of the shortest path from source to i.
  template <class Real>
  void run(const GraphView& graph, const Buckets& buckets, std::int32_t source) const {
    const Real* const lengths = static_cast<const Real*>(graph.lengths);
    const std::int32_t mask = buckets.count - 1;
    std::fill_n(nodes, graph.nodes, Node{kInf, -1, -1, -1});
    std::fill_n(heads, buckets.count, -1);
    nodes[source].distance = 0;
    insert(source, 0, mask);
    std::int64_t waiting = 1;
    for (std::int64_t at = 0; waiting > 0;) {
      const std::int32_t node = heads[at & mask];
      if (node < 0) {
        ++at;
        continue;
      }
      remove(node, mask);
      --waiting;
      const double from = nodes[node].distance;
      for (std::int64_t e = graph.row_begins[node]; e < graph.row_begins[node + 1]; ++e) {
        Node& to = nodes[graph.neighbors[e]];
        const double length = from + static_cast<double>(lengths[e]);
        if (!(length < to.distance)) continue;
        to.distance = length;
        const std::int64_t place = static_cast<std::int64_t>(length * buckets.per_length);
        if (to.bucket == place) continue;
        if (to.bucket >= 0) {
          remove(graph.neighbors[e], mask);
        } else {
          ++waiting;
        }
        insert(graph.neighbors[e], place, mask);
      }
    }
  }

  template <class Real>
  void write_distances(int count, Real* to) const {
    for (int i = 0; i < count; ++i) to[i] = static_cast<Real>(nodes[i].distance);
  }

 private:
  void insert(std::int32_t node, std::int64_t place, std::int32_t mask) const {
    std::int32_t& head = heads[place & mask];
    nodes[node].bucket = place;
    nodes[node].before = -1;
    nodes[node].next = head;
    if (head >= 0) nodes[head].before = node;
    head = node;
  }
  void remove(std::int32_t node, std::int32_t mask) const {
    Node& of = nodes[node];
    if (of.before >= 0) {
      nodes[of.before].next = of.next;
    } else {
      heads[of.bucket & mask] = of.next;
    }
    if (of.next >= 0) nodes[of.next].before = of.before;
    of.bucket = -1;
  }
};

std::size_t search_bytes(int nodes) {
  Arena arena;
  const Search search(arena, nodes);
  return arena.used();
}

// Workers that a call can use.
int workers_of(std::int32_t sources, const Execution& execution) {
  return std::clamp(threads_of(execution), 1, std::max(sources, 1));
}

}  // namespace

std::size_t shortest_paths_cpu_workspace_bytes(const GraphView& graph, std::int32_t count,
                                               const Execution& execution) {
  return workers_of(count, execution) * search_bytes(graph.nodes);
}

Status shortest_paths_cpu(const GraphView& graph, const std::int32_t* sources, std::int32_t count,
                          void* distances, Workspace workspace, const Execution& execution) {
  const std::size_t bytes = search_bytes(graph.nodes);
  visit_float32_float64(graph.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    const Buckets buckets = Buckets::of<Real>(graph);
    const BlockTeam team(execution.parallel_for, workers_of(count, execution));
    team.run(count, [&](int k, int worker) {
      Arena arena(static_cast<std::byte*>(workspace.data) + worker * bytes);
      const Search search(arena, graph.nodes);
      search.run<Real>(graph, buckets, sources[k]);
      search.write_distances(graph.nodes,
                             static_cast<Real*>(distances) + static_cast<std::int64_t>(k) * graph.nodes);
    });
  });
  return {};
}

Status connected_components_cpu(const GraphView& graph, std::int32_t* labels, std::int32_t* components) {
  visit_float32_float64(graph.dtype, [&](auto type) {
    const auto* const lengths = static_cast<const typename decltype(type)::Type*>(graph.lengths);
    NodeSets sets(labels, graph.nodes);
    for (int i = 0; i < graph.nodes; ++i) {
      for (std::int64_t e = graph.row_begins[i]; e < graph.row_begins[i + 1]; ++e) {
        if (!std::isinf(lengths[e])) sets.join(i, graph.neighbors[e]);
      }
    }
    *components = sets.number(graph.nodes);
  });
  return {};
}

std::size_t farthest_landmarks_cpu_workspace_bytes(const GraphView& graph) {
  Arena arena;
  arena.take<double>(graph.nodes);
  return arena.used() + search_bytes(graph.nodes);
}

Status farthest_landmarks_cpu(const GraphView& graph, std::int32_t count, std::int32_t start,
                              std::int32_t* chosen, void* distances, Workspace workspace) {
  Arena arena(workspace.data);
  double* const nearest = arena.take<double>(graph.nodes);
  const Search search(arena, graph.nodes);
  visit_float32_float64(graph.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    const Buckets buckets = Buckets::of<Real>(graph);
    std::fill_n(nearest, graph.nodes, kInf);
    std::int32_t landmark = start;
    for (std::int32_t k = 0; k < count; ++k) {
      chosen[k] = landmark;
      search.run<Real>(graph, buckets, landmark);
      search.write_distances(graph.nodes,
                             static_cast<Real*>(distances) + static_cast<std::int64_t>(k) * graph.nodes);
      for (int i = 0; i < graph.nodes; ++i) nearest[i] = std::min(nearest[i], search.nodes[i].distance);
      nearest[landmark] = -1;  // nodes at distance 0 of one are chosen last, but each node once
      landmark = static_cast<std::int32_t>(std::max_element(nearest, nearest + graph.nodes) - nearest);
    }
  });
  return {};
}

}  // namespace warpalign::detail::transport
