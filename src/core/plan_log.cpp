#include "core/plan_log.h"

#include <algorithm>

#include "core/device_class.h"
#include "warpalign/plan.h"

namespace warpalign::detail {
namespace {

// 1234567 as 1,234,567.
std::string grouped(std::size_t number) {
  std::string text = std::to_string(number);
  for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

std::string padded(const std::string& text, std::size_t width) {
  return text.size() >= width ? text + " " : text + std::string(width - text.size(), ' ');
}

}  // namespace

PlanLog::Call& PlanLog::call() {
  if (calls_.empty()) calls_.emplace_back();
  return calls_.back();
}

void PlanLog::begin(const char* name, const std::string& device) {
  calls_.emplace_back().heading = std::string(name) + " on " + device;
}

void PlanLog::way(const char* name, const std::string& why) { line("way", std::string(name) + ": " + why); }

void PlanLog::line(const char* label, const std::string& text) { call().lines.push_back({label, text}); }

void PlanLog::memory(const char* part, std::size_t bytes) {
  if (bytes == 0) return;
  call().parts.push_back({part, grouped(bytes)});
  call().bytes += bytes;
}

void PlanLog::launch(const char* kernel, int blocks, int threads, std::size_t shared_bytes, int cluster,
                     bool cooperative) {
  std::string text = std::string(kernel) + ": grid " + std::to_string(blocks) + ", block " +
                     std::to_string(threads) + ", " + grouped(shared_bytes) + " bytes of shared memory";
  if (cluster > 1) text += ", clusters of " + std::to_string(cluster);
  if (cooperative) text += ", cooperative";
  count(text);
}

void PlanLog::clear_memory(std::size_t bytes) { count("set memory: " + grouped(bytes) + " bytes"); }

void PlanLog::copy_memory(std::size_t bytes) { count("copy memory: " + grouped(bytes) + " bytes"); }

void PlanLog::product(long long rows, long long columns, long long depth) {
  count("lent product: " + std::to_string(rows) + " x " + std::to_string(columns) + ", depth " +
        std::to_string(depth));
}

void PlanLog::count(const std::string& text) {
  std::vector<Count>& all = call().launches;
  const auto same = std::ranges::find(all, text, &Count::text);
  if (same != all.end()) {
    ++same->count;
  } else {
    all.push_back({text, 1});
  }
}

std::string PlanLog::text() const {
  constexpr std::size_t kLabel = 12;
  std::string text;
  for (const Call& call : calls_) {
    text += call.heading + "\n";
    for (const Line& line : call.lines) text += "  " + padded(line.label, kLabel) + line.text + "\n";
    if (!call.parts.empty()) text += "  " + padded("memory", kLabel) + grouped(call.bytes) + " bytes\n";
    for (const Line& part : call.parts) text += "    " + padded(part.label, 28) + part.text + "\n";
    if (call.launches.empty()) continue;
    long long launches = 0;
    for (const Count& one : call.launches) launches += one.count;
    text += "  " + padded("launches", kLabel) + std::to_string(launches) + "\n";
    for (const Count& one : call.launches) {
      text += "    " + (one.count > 1 ? std::to_string(one.count) + " x " : "") + one.text + "\n";
    }
  }
  return text;
}

}  // namespace warpalign::detail

namespace warpalign {

PlanDescription::PlanDescription(const char* device_class) : log_(new detail::PlanLog(device_class)) {
  detail::PlanLog::set_current(log_);
}

PlanDescription::~PlanDescription() {
  detail::PlanLog::set_current(nullptr);
  delete log_;
}

Status PlanDescription::status() const { return detail::check_device_class(log_->device_class()); }

std::string PlanDescription::text() const { return log_->text(); }

}  // namespace warpalign
