// Ways by name, through ctypes: python/warpalign/_core/ways.py. Each of the two libraries keeps its own.
#include "ways.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include "export.h"
#include "warpalign/plan.h"

namespace warpalign::binding {
namespace {

struct Ways {
  const char* name;
  const char* (*way)(Device device, int index);
};
// In the order of Operator.
constexpr Ways kWays[] = {
    {"soft_dtw", soft_dtw_way}, {"transducer", transducer_way}, {"transducer_joint", transducer_joint_way},
    {"ctc", ctc_way},           {"sinkhorn", sinkhorn_way},     {"lstm", lstm_way},
};
constexpr int kOperators = sizeof(kWays) / sizeof(kWays[0]);
std::atomic<const char*> forced[static_cast<int>(Operator::kOther)];

// -1: there is none of this name.
int operator_of(const char* name) {
  for (int k = 0; k < kOperators; ++k) {
    if (std::strcmp(kWays[k].name, name) == 0) return k;
  }
  return -1;
}

// A copy that lives as long as the process: another thread may be in a call that reads it.
const char* kept(const char* text) {
  static std::mutex mutex;
  static std::set<std::string> all;
  const std::lock_guard lock(mutex);
  return all.emplace(text).first->c_str();
}

}  // namespace

const char* forced_way(Operator of) {
  return of == Operator::kOther ? nullptr : forced[static_cast<int>(of)].load(std::memory_order_relaxed);
}

}  // namespace warpalign::binding

// Name number `index` of an operator's ways; null where there is none. Unknown operators have none.
WARPALIGN_EXPORT const char* warpalign_way(const char* operator_name, bool on_cuda, int index) {
  using namespace warpalign::binding;
  const int of = operator_of(operator_name);
  return of < 0 ? nullptr
                : kWays[of].way(on_cuda ? warpalign::Device::kCuda : warpalign::Device::kHost, index);
}

// Every call of the operator takes this way from now on, in all threads of this process; empty: the plan
// chooses. False: there is no such operator. Calls say whether there is such a way.
WARPALIGN_EXPORT bool warpalign_force_way(const char* operator_name, const char* way) {
  using namespace warpalign::binding;
  const int of = operator_of(operator_name);
  if (of >= 0) forced[of] = *way ? kept(way) : nullptr;
  return of >= 0;
}
