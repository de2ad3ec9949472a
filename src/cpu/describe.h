// What descriptions of plans say of the CPU path's threads.
#pragma once

#include <string>

#include "core/plan_log.h"
#include "core/ways.h"
#include "cpu/isa.h"
#include "cpu/team.h"

namespace warpalign::cpu {

using detail::PlanLog;

// Such as "CPU, 8 threads, avx2".
inline std::string name_of_threads(const Execution& execution) {
  const int threads = Team::threads_of(execution);
  return "CPU, " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") +
         isa_name(selected_isa());
}

// The way, the workers and the memory of a team. why: unless the execution names the way.
inline void describe_team(const Team& team, const Execution& execution, const char* why, PlanLog& log) {
  const ThreadWay way = team.shares_work() ? ThreadWay::kWithinItems : ThreadWay::kAcrossBatch;
  log.way(kThreadWays[static_cast<int>(way)], detail::names_way(execution) ? "named by Execution::way" : why);
  log.line("workers", std::to_string(team.workers) + ", at most " + std::to_string(team.workers_per_item) +
                          " for an item, " + std::to_string(team.items_at_once) + " items at a time");
  log.memory("slots for shared work", team.slot_bytes());
  log.memory("items at work", team.items_at_once * team.item_bytes);
  log.memory("scratch of workers", team.workers * team.scratch_bytes);
}

// Describes a call of a function that has one way, whose threads take items and rows as they come. False:
// there is nothing to describe, and the call runs.
inline bool is_described(const char* call, std::size_t workspace, const Execution& execution) {
  PlanLog* const log = PlanLog::current();
  if (!log) return false;
  log->begin(call, name_of_threads(execution));
  log->line("way", "the only one: threads take items, or rows of them, as they come");
  log->memory("workspace", workspace);
  return true;
}

}  // namespace warpalign::cpu
