// Plans that a thread keeps (core/plan_cache.h) are found again only by calls that have the same plan: each
// argument of a call is changed in turn, and the thread that has planned the unchanged call has to describe
// the changed one as a new thread does, which keeps no plan yet. On the CPU alone, by the emulator.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "simt.h"
#include "warpalign/execution.h"
#include "warpalign/plan.h"
#include "warpalign/status.h"
#include "warpalign/tensor.h"

namespace warpalign::test {

// Addresses that a described call neither reads nor writes, far from each other.
class Places {
 public:
  void* next() {
    const std::uintptr_t address = std::uintptr_t{1} << 44 | ++count_ << 38;
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): no object has this address
  }
  template <std::size_t kRank>
  auto tensor(const std::int64_t (&extents)[kRank]) {
    return StridedTensorOf<static_cast<int>(kRank)>::contiguous(next(), extents);
  }
  Workspace workspace(std::size_t bytes) { return {next(), bytes}; }

 private:
  std::uintptr_t count_ = 0;
};

// Whether the plan of any of the calls follows from an argument. Else it may not change with it.
enum class InPlan { kYes, kNo };

template <class Call>
struct Change {
  const char* argument;
  std::function<void(Call&)> make;
  InPlan in_plan = InPlan::kYes;
};

// Call: has `device`, a simt::Device, and run(), which makes its calls and returns the first error.
template <class Call>
std::string described(const Call& call) {
  simt::device = call.device;
  const PlanDescription description;
  const Status status = call.run();
  return description.text() + to_string(status);
}

template <class Call>
std::string described_by_new_thread(const Call& call) {
  std::string text;
  std::thread([&] { text = described(call); }).join();
  return text;
}

template <class Call>
void expect_no_stale_plan(const std::vector<Call>& calls, const std::vector<Change<Call>>& changes) {
  for (const Change<Call>& change : changes) {
    SCOPED_TRACE(change.argument);
    bool changes_a_plan = false;
    for (const Call& call : calls) {
      Call changed = call;
      change.make(changed);
      const std::string expected = described_by_new_thread(call);
      const std::string expected_of_change = described_by_new_thread(changed);
      changes_a_plan |= expected_of_change != expected;
      EXPECT_EQ(described(call), expected);
      EXPECT_EQ(described(changed), expected_of_change);
      EXPECT_EQ(described(call), expected);
    }
    EXPECT_EQ(changes_a_plan, change.in_plan == InPlan::kYes);
  }
  simt::device = {};
}

}  // namespace warpalign::test
