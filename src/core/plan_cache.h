// Plans that a thread has made: the query of a workspace's size, the checks and the call itself, and the next
// call of the same sizes, find the plan instead of making it again.
//
//   thread_local PlanCache<Key, Plan> plans;
//   const Plan plan = plans.find(key, [&] { return make_plan(key); });
//
// A key has everything that a plan follows from, the device's traits too, and no address. It is compared by
// ==.
#pragma once

#include <array>
#include <cstddef>

#include "core/tuning.h"

namespace warpalign::detail {

template <class Key, class Plan, std::size_t kEntries = 16>
class PlanCache {
 public:
  template <class Make>
  Plan find(const Key& key, const Make& make) {
    // A plan follows from thresholds, too.
    if (const unsigned forced = forced_thresholds; forced != forced_) {
      forced_ = forced;
      count_ = next_ = 0;
    }
    for (std::size_t k = 0; k < count_; ++k) {
      if (entries_[k].key == key) return entries_[k].plan;
    }
    const Plan plan = make();
    if constexpr (requires { plan.status.ok(); }) {
      if (!plan.status.ok()) return plan;  // the device may be able to do it later
    }
    // The oldest plan makes room.
    entries_[next_] = {key, plan};
    next_ = (next_ + 1) % kEntries;
    if (count_ < kEntries) ++count_;
    return plan;
  }

 private:
  struct Entry {
    Key key;
    Plan plan;
  };
  std::array<Entry, kEntries> entries_{};
  std::size_t count_ = 0, next_ = 0;
  unsigned forced_ = 0;
};

}  // namespace warpalign::detail
