// The entry points of warpalign/gromov_anchors.h. api_anchors.cpp has checked the arguments.
#pragma once

#include "warpalign/gromov_anchors.h"

namespace warpalign::detail::transport {

// The number of parts of a row's columns, which depends on their number alone.
inline constexpr int kAnchorColumns = 1024;  // the fewest columns of a part
inline constexpr int kMostAnchorParts = 32;
constexpr int anchor_parts(int columns) {
  const int parts = (columns + kAnchorColumns - 1) / kAnchorColumns;
  return parts < kMostAnchorParts ? parts : kMostAnchorParts;
}

std::size_t largest_differences_cpu_workspace_bytes(const LargestDifferences&, const Execution&);
Status largest_differences_cpu(const LargestDifferences&, Workspace, const Execution&);

Status anchor_columns_cuda(const AnchorColumns&, Workspace, void* stream);
Status anchor_coordinates_cuda(const AnchorCoordinates&, void* stream);

}  // namespace warpalign::detail::transport
