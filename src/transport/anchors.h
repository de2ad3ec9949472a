// The entry points behind warpalign/gromov_anchors.h. Arguments have been checked by api_anchors.cpp.
#pragma once

#include "warpalign/gromov_anchors.h"

namespace warpalign::detail::transport {

// Into how many parts the columns of a row are cut: by their number alone.
inline constexpr int kAnchorColumns = 1024;  // of a part, at least
inline constexpr int kMostAnchorParts = 32;
constexpr int anchor_parts(int columns) {
  const int parts = (columns + kAnchorColumns - 1) / kAnchorColumns;
  return parts < kMostAnchorParts ? parts : kMostAnchorParts;
}

Status anchor_columns_cuda(const AnchorColumns&, Workspace, void* stream);
Status anchor_coordinates_cuda(const AnchorCoordinates&, void* stream);

}  // namespace warpalign::detail::transport
