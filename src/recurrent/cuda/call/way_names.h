// The ways of a sweep by name, in the order of the table in schedule/plan.cuh.
#pragma once

namespace warpalign::detail::recurrent {

inline constexpr const char* kWayNames[] = {"stream", "blocks", "clusters", "grid", "products", "steps"};

}  // namespace warpalign::detail::recurrent
