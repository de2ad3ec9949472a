// The ways of an operator, of which a plan chooses one, or Execution::way names one.
//
// An operator lists its ways on a device in an array of names, in the order of its enumeration, and says for
// each why it cannot serve a problem. Everything else is here.
#pragma once

#include <span>
#include <string>

#include "warpalign/execution.h"
#include "warpalign/status.h"

namespace warpalign::detail {

using WayNames = std::span<const char* const>;

inline bool names_way(const Execution& execution) { return execution.way && *execution.way; }

// The index of the way that the execution names; -1: the plan chooses, or the name is not listed.
int named_way(const Execution& execution, WayNames names);

// Whether the name is empty or listed. The error says which names there are. subject: the operator and
// device, such as "soft_dtw() on CUDA".
Status check_way(const Execution& execution, WayNames names, const char* subject);

// The error of a way that cannot serve a problem: the reason, and the ways that can, by `why_not(way)`, which
// is null for those.
Status refuse_way(int way, WayNames names, const char* (*why_not)(int way, const void* problem),
                  const void* problem);
// The same, where why_not is a callable.
template <class WhyNot>
Status check_serves(int way, WayNames names, const WhyNot& why_not) {
  if (way < 0 || !why_not(way)) return {};
  const auto call = [](int of, const void* state) -> const char* {
    return (*static_cast<const WhyNot*>(state))(of);
  };
  return refuse_way(way, names, call, &why_not);
}

// Name number `index`, or null: what the public functions return.
inline const char* way_at(WayNames names, int index) {
  return index >= 0 && index < static_cast<int>(names.size()) ? names[index] : nullptr;
}

}  // namespace warpalign::detail
