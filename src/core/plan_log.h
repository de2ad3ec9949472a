// What PlanDescription collects. A path describes its plan where it would run it:
//
//   if (PlanLog* const log = PlanLog::current()) plan.describe(*log);
//
// cuda::launch(), set_memory() and Arena::take() add to it by themselves, so that launches and memory are
// those that a run would have.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace warpalign::detail {

class PlanLog {
 public:
  explicit PlanLog(const char* device_class) : device_class_(device_class ? device_class : "") {}
  PlanLog(const PlanLog&) = delete;
  PlanLog& operator=(const PlanLog&) = delete;

  // The calling thread's; null: calls run.
  static PlanLog* current() { return current_; }
  static void set_current(PlanLog* log) { current_ = log; }

  // Empty: the execution's own device.
  [[nodiscard]] const std::string& device_class() const { return device_class_; }

  // Begins the description of a call. device: such as "CUDA 9.0" or "CPU, 8 threads".
  void begin(const char* call, const std::string& device);
  // why: which of the plan's rules has chosen the way.
  void way(const char* name, const std::string& why);
  void line(const char* label, const std::string& text);
  void memory(const char* part, std::size_t bytes);
  // Equal launches of a call are one line with their number.
  void launch(const char* kernel, int blocks, int threads, std::size_t shared_bytes, int cluster,
              bool cooperative);
  void clear_memory(std::size_t bytes);
  void copy_memory(std::size_t bytes);
  // A product of matrices that the execution lends.
  void product(long long rows, long long columns, long long depth);

  [[nodiscard]] std::string text() const;

 private:
  struct Line {
    std::string label, text;
  };
  struct Count {
    std::string text;
    long long count;
  };
  struct Call {
    std::string heading;
    std::vector<Line> lines;
    std::vector<Line> parts;  // of memory
    std::size_t bytes = 0;    // of all parts
    std::vector<Count> launches;
  };
  Call& call();
  void count(const std::string& text);

  inline static constinit thread_local PlanLog* current_ = nullptr;
  std::string device_class_;
  std::vector<Call> calls_;
};

}  // namespace warpalign::detail
