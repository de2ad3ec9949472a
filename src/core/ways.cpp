#include "core/ways.h"

#include <cstdio>
#include <cstring>

namespace warpalign::detail {
namespace {

// A Status refers to its text. Each thread keeps the last one that was made of parts.
const char* kept(const std::string& text) {
  thread_local char buffer[1024];
  std::snprintf(buffer, sizeof(buffer), "%s", text.c_str());
  return buffer;
}

}  // namespace

int named_way(const Execution& execution, WayNames names) {
  for (std::size_t way = 0; names_way(execution) && way < names.size(); ++way) {
    if (std::strcmp(execution.way, names[way]) == 0) return static_cast<int>(way);
  }
  return -1;
}

Status check_way(const Execution& execution, WayNames names, const char* subject) {
  if (!names_way(execution) || named_way(execution, names) >= 0) return {};
  std::string text = std::string(subject) + " has no way \"" + execution.way + "\"; its ways are ";
  for (std::size_t way = 0; way < names.size(); ++way) text += std::string(way > 0 ? ", " : "") + names[way];
  if (names.empty()) text += "none to choose from";
  return Status::unsupported("way", kept(text));
}

Status refuse_way(int way, WayNames names, const char* (*why_not)(int way, const void* problem),
                  const void* problem) {
  std::string text = std::string(names[way]) + " cannot serve this call: " + why_not(way, problem);
  std::string others;
  for (int other = 0; other < static_cast<int>(names.size()); ++other) {
    if (!why_not(other, problem)) others += std::string(others.empty() ? "" : ", ") + names[other];
  }
  text += others.empty() ? "; no way can" : "; these ways can: " + others;
  return Status::unsupported("way", kept(text));
}

}  // namespace warpalign::detail
