// Shared by the CPU functions on graphs: disjoint sets of nodes, and the caller's threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "warpalign/execution.h"

namespace warpalign::detail::transport {

inline int threads_of(const Execution& execution) {
  return execution.parallel_for.run ? std::max(execution.parallel_for.threads, 1) : 1;
}

// Disjoint sets of nodes in an array: parent[i] <= i, and a set's smallest node is its root.
class NodeSets {
 public:
  NodeSets(std::int32_t* parent, int nodes) : parent_(parent) {
    for (int i = 0; i < nodes; ++i) parent_[i] = i;
  }
  std::int32_t root_of(std::int32_t i) {
    while (parent_[i] != i) {
      parent_[i] = parent_[parent_[i]];
      i = parent_[i];
    }
    return i;
  }
  // Joins the sets of i and j. Returns whether they were different.
  bool join(std::int32_t i, std::int32_t j) {
    std::int32_t low = root_of(i), high = root_of(j);
    if (low == high) return false;
    if (low > high) std::swap(low, high);
    parent_[high] = low;
    return true;
  }
  // Replaces every node's parent by the number of its set, from 0 in the order of the sets' smallest nodes.
  // The sets must not be used afterwards. Returns the number of sets.
  std::int32_t number(int nodes) {
    std::int32_t count = 0;
    for (int i = 0; i < nodes; ++i) {
      // A node's parent is smaller, and already has its number.
      parent_[i] = parent_[i] == i ? count++ : parent_[parent_[i]];
    }
    return count;
  }

 private:
  std::int32_t* parent_;
};

}  // namespace warpalign::detail::transport
