// The CPU paths of shortest_paths(), farthest_landmarks() and connected_components().
//
// A search is label-correcting with buckets of equal width (delta-stepping): the nodes of the nearest bucket
// are relaxed, in any order, until it is empty. A node is in at most one bucket, which is a doubly linked
// list, so that memory is bounded. The width is half the mean length of an edge. Buckets form a ring: no
// tentative distance exceeds that of the current bucket by more than the longest edge.
//
// Sources that are near each other are searched eight at a time: their distances are contiguous, and an edge
// is read once for all of them. A node waits in the bucket of its nearest new distance. Distances of the
// other sources that are relaxed too early are corrected later, as are those of nodes whose bucket is past
// the ring's end and shares a place with a nearer one. Results are bitwise identical to single searches: the
// least of all paths' sums, rounded from edge to edge.
#include <algorithm>
#include <array>
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
#include "transport/tuning.h"

namespace warpalign::detail::transport {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int kMostBuckets = 4096;
constexpr int kTogether = 8, kNeighborhood = 64;  // sources of a joint search; nodes among which they are

// The width of buckets, and their number in the ring.
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

// The bucket of a node, and its neighbours there.
struct Place {
  std::int64_t bucket;  // -1: in no bucket
  std::int32_t next;    // next node of the bucket; -1: none
  std::int32_t before;  // previous node; -1: none
};

// A node in a search from one source. Its data are contiguous because accesses to nodes are random.
struct Node {
  double distance;
  Place place;
};

// The same for eight sources.
struct alignas(64) JointNode {
  double distance[kTogether];
  Place place;
};

// The ring of buckets over a search's nodes.
template <class AnyNode>
class Queue {
 public:
  Queue(AnyNode* nodes, std::int32_t* heads, std::int32_t count)
      : nodes_(nodes), heads_(heads), mask_(count - 1) {
    std::fill_n(heads, count, -1);
  }

  // Removes a node of the nearest bucket, and returns it; -1 if all buckets are empty.
  std::int32_t take() {
    if (waiting_ == 0) return -1;
    while (heads_[at_ & mask_] < 0) ++at_;
    const std::int32_t node = heads_[at_ & mask_];
    remove(node);
    return node;
  }
  // Moves a node to a bucket, which is not nearer than the current one.
  void put(std::int32_t node, std::int64_t bucket) {
    Place& of = nodes_[node].place;
    if (of.bucket == bucket) return;
    if (of.bucket >= 0) remove(node);
    std::int32_t& head = heads_[bucket & mask_];
    of = {bucket, head, -1};
    if (head >= 0) nodes_[head].place.before = node;
    head = node;
    ++waiting_;
  }
  [[nodiscard]] std::int64_t at() const { return at_; }

 private:
  void remove(std::int32_t node) {
    Place& of = nodes_[node].place;
    if (of.before >= 0) {
      nodes_[of.before].place.next = of.next;
    } else {
      heads_[of.bucket & mask_] = of.next;
    }
    if (of.next >= 0) nodes_[of.next].place.before = of.before;
    of.bucket = -1;
    --waiting_;
  }

  AnyNode* nodes_;
  std::int32_t* heads_;  // -1: empty
  std::int32_t mask_;
  std::int64_t at_ = 0;  // the current bucket
  std::int64_t waiting_ = 0;
};

// The memory of one worker's searches.
struct Search {
  Node* nodes;          // (N)
  std::int32_t* heads;  // (kMostBuckets)

  Search(Arena& arena, int count)
      : nodes(arena.take<Node>(count)), heads(arena.take<std::int32_t>(kMostBuckets)) {}

  // nodes[i].distance = the length of the shortest path from source to i.
  template <class Real>
  void run(const GraphView& graph, const Buckets& buckets, std::int32_t source) const {
    const Real* const lengths = static_cast<const Real*>(graph.lengths);
    std::fill_n(nodes, graph.nodes, Node{kInf, {-1, -1, -1}});
    Queue<Node> queue(nodes, heads, buckets.count);
    nodes[source].distance = 0;
    queue.put(source, 0);
    for (std::int32_t node = queue.take(); node >= 0; node = queue.take()) {
      const double from = nodes[node].distance;
      for (std::int64_t e = graph.row_begins[node]; e < graph.row_begins[node + 1]; ++e) {
        Node& to = nodes[graph.neighbors[e]];
        const double length = from + static_cast<double>(lengths[e]);
        if (!(length < to.distance)) continue;
        to.distance = length;
        queue.put(graph.neighbors[e], static_cast<std::int64_t>(length * buckets.per_length));
      }
    }
  }

  template <class Real>
  void write_distances(int count, Real* to) const {
    for (int i = 0; i < count; ++i) to[i] = static_cast<Real>(nodes[i].distance);
  }
};

// The memory of one worker's searches from eight sources.
struct JointSearch {
  JointNode* nodes;     // (N)
  std::int32_t* heads;  // (kMostBuckets)

  JointSearch(Arena& arena, int count)
      : nodes(arena.take<JointNode>(count)), heads(arena.take<std::int32_t>(kMostBuckets)) {}

  // nodes[i].distance[s] = the length of the shortest path from sources[s] to i.
  template <class Real>
  void run(const GraphView& graph, const Buckets& buckets,
           const std::array<std::int32_t, kTogether>& sources) const {
    const Real* const lengths = static_cast<const Real*>(graph.lengths);
    JointNode unseen{{}, {-1, -1, -1}};
    std::fill_n(unseen.distance, kTogether, kInf);
    std::fill_n(nodes, graph.nodes, unseen);
    Queue<JointNode> queue(nodes, heads, buckets.count);
    for (int s = 0; s < kTogether; ++s) {
      nodes[sources[s]].distance[s] = 0;
      queue.put(sources[s], 0);
    }
    for (std::int32_t node = queue.take(); node >= 0; node = queue.take()) {
      const JointNode from = nodes[node];
      for (std::int64_t e = graph.row_begins[node]; e < graph.row_begins[node + 1]; ++e) {
        JointNode& to = nodes[graph.neighbors[e]];
        const double nearest = shorten(from, static_cast<double>(lengths[e]), to);
        if (nearest == kInf) continue;
        const std::int64_t bucket =
            std::max(static_cast<std::int64_t>(nearest * buckets.per_length), queue.at());
        if (to.place.bucket < 0 || bucket < to.place.bucket) queue.put(graph.neighbors[e], bucket);
      }
    }
  }

  template <class Real>
  void write_distances(int count, int s, Real* to) const {
    for (int i = 0; i < count; ++i) to[i] = static_cast<Real>(nodes[i].distance[s]);
  }

 private:
  // Relaxes an edge for all sources. Returns the least new distance; infinity if there is none.
  static double shorten(const JointNode& from, double length, JointNode& to) {
    double over[kTogether];
    bool any = false;
    for (int s = 0; s < kTogether; ++s) {
      over[s] = from.distance[s] + length;
      any |= over[s] < to.distance[s];
    }
    if (!any) return kInf;
    double nearest = kInf;
    for (int s = 0; s < kTogether; ++s) {
      const double better = over[s] < to.distance[s] ? over[s] : kInf;
      nearest = std::min(nearest, better);
      to.distance[s] = std::min(to.distance[s], better);
    }
    return nearest;
  }
};

std::size_t search_bytes(int nodes) {
  Arena arena;
  const Search search(arena, nodes);
  return arena.used();
}

std::size_t joint_search_bytes(int nodes) {
  Arena arena;
  const JointSearch search(arena, nodes);
  return arena.used();
}

// The groups of sources that are searched together.
struct Groups {
  std::int32_t* order;   // (sources): indices of sources, group by group
  std::int32_t* begins;  // (sources + 1): the begin of each group in `order`
  std::int32_t* first;   // (N): the index of a source at the node that has no group yet; -1: none
  std::int32_t* next;    // (sources): the index of another one at the same node
  std::int32_t* seen;    // (N): the last group that visited the node
  std::int32_t count = 0;

  Groups(Arena& arena, int nodes, std::int32_t sources)
      : order(arena.take<std::int32_t>(sources)),
        begins(arena.take<std::int32_t>(static_cast<std::size_t>(sources) + 1)),
        first(arena.take<std::int32_t>(nodes)),
        next(arena.take<std::int32_t>(sources)),
        seen(arena.take<std::int32_t>(nodes)) {}

  // Each source without a group gets up to seven others from its neighbourhood.
  void make(const GraphView& graph, const std::int32_t* sources, std::int32_t sources_count, int most) {
    std::fill_n(first, graph.nodes, -1);
    std::fill_n(seen, graph.nodes, -1);
    for (std::int32_t k = sources_count; k-- > 0;) {
      next[k] = first[sources[k]];
      first[sources[k]] = k;
    }
    std::int32_t done = 0;
    for (std::int32_t k = 0; k < sources_count; ++k) {
      if (first[sources[k]] != k) continue;
      begins[count] = done;
      done = gather(graph, sources[k], done, most);
      ++count;
    }
    begins[count] = done;
  }

 private:
  // Collects sources from a node on, breadth first. Returns the end of the group in `order`.
  std::int32_t gather(const GraphView& graph, std::int32_t node, std::int32_t done, int most) const {
    std::array<std::int32_t, kNeighborhood> queue{node};
    seen[node] = count;
    const std::int32_t end = done + most;
    for (int at = 0, length = 1; at < length; ++at) {
      const std::int32_t here = queue[at];
      for (; first[here] >= 0 && done < end; first[here] = next[first[here]]) order[done++] = first[here];
      if (done == end) break;
      for (std::int64_t e = graph.row_begins[here]; e < graph.row_begins[here + 1]; ++e) {
        const std::int32_t to = graph.neighbors[e];
        if (length == kNeighborhood) break;
        if (seen[to] == count) continue;
        seen[to] = count;
        queue[length++] = to;
      }
    }
    return done;
  }
};

std::size_t groups_bytes(int nodes, std::int32_t sources) {
  Arena arena;
  const Groups groups(arena, nodes, sources);
  return arena.used();
}

// The number of workers that a call can use.
int workers_of(std::int32_t sources, const Execution& execution) {
  return std::clamp(threads_of(execution), 1, std::max(sources, 1));
}

// The fewest sources of a joint search; above kTogether if there are too few sources for all workers.
int fewest_together(std::int32_t sources, const Execution& execution) {
  if (sources / kTogether < threads_of(execution)) return kTogether + 1;
  return cpu_tuning(cpu::selected_isa()).joint_search_sources;
}

std::size_t worker_bytes(const GraphView& graph, std::int32_t sources, const Execution& execution) {
  const std::size_t alone = search_bytes(graph.nodes), together = joint_search_bytes(graph.nodes);
  return fewest_together(sources, execution) > kTogether ? alone : std::max(alone, together);
}

}  // namespace

std::size_t shortest_paths_cpu_workspace_bytes(const GraphView& graph, std::int32_t count,
                                               const Execution& execution) {
  return groups_bytes(graph.nodes, count) +
         workers_of(count, execution) * worker_bytes(graph, count, execution);
}

Status shortest_paths_cpu(const GraphView& graph, const std::int32_t* sources, std::int32_t count,
                          void* distances, Workspace workspace, const Execution& execution) {
  const std::size_t bytes = worker_bytes(graph, count, execution);
  Arena shared(workspace.data);
  Groups groups(shared, graph.nodes, count);
  const int fewest = fewest_together(count, execution);
  groups.make(graph, sources, count, fewest <= kTogether ? kTogether : 1);
  std::byte* const of_workers = static_cast<std::byte*>(workspace.data) + groups_bytes(graph.nodes, count);
  visit_float32_float64(graph.dtype, [&](auto type) {
    using Real = typename decltype(type)::Type;
    const Buckets buckets = Buckets::of<Real>(graph);
    const auto row = [&](std::int32_t k) {
      return static_cast<Real*>(distances) + static_cast<std::int64_t>(k) * graph.nodes;
    };
    const BlockTeam team(execution.parallel_for, workers_of(count, execution));
    team.run(groups.count, [&](int group, int worker) {
      Arena arena(of_workers + worker * bytes);
      const std::int32_t* const places = groups.order + groups.begins[group];
      const std::int32_t size = groups.begins[group + 1] - groups.begins[group];
      if (size < fewest) {
        const Search search(arena, graph.nodes);
        for (std::int32_t s = 0; s < size; ++s) {
          search.run<Real>(graph, buckets, sources[places[s]]);
          search.write_distances(graph.nodes, row(places[s]));
        }
        return;
      }
      const JointSearch search(arena, graph.nodes);
      std::array<std::int32_t, kTogether> of_group;
      for (std::int32_t s = 0; s < kTogether; ++s) of_group[s] = sources[places[std::min(s, size - 1)]];
      search.run<Real>(graph, buckets, of_group);
      for (std::int32_t s = 0; s < size; ++s) search.write_distances(graph.nodes, s, row(places[s]));
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
      nearest[landmark] = -1;  // so that nodes at distance 0 are chosen last, and each node only once
      landmark = static_cast<std::int32_t>(std::max_element(nearest, nearest + graph.nodes) - nearest);
    }
  });
  return {};
}

}  // namespace warpalign::detail::transport
