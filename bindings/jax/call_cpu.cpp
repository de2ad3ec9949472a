// On a CPU XLA's thread pool runs the core's tasks.
#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "call_xla.h"
#include "execution.h"

namespace warpalign::binding {
namespace {

// One call's tasks, which any number of threads take from.
struct Tasks {
  Tasks(int number, ParallelFor::Task run, void* its_state) : count(number), task(run), state(its_state) {}

  // Touches the state only while it has a task, so a thread that comes too late does no harm.
  void take() {
    for (int index = next++; index < count; index = next++) {
      task(state, index);
      if (++done == count) done.notify_all();
    }
  }
  void wait() const {
    for (int now = done; now < count; now = done) done.wait(now);
  }

  const int count;
  const ParallelFor::Task task;
  void* const state;
  std::atomic<int> next = 0, done = 0;
};

// The calling thread, one of XLA's, works too, and waits for nothing but tasks that other threads have begun:
// so calls cannot wait for each other, however few threads there are.
void run_tasks(void* pool, int count, ParallelFor::Task task, void* state) {
  const auto tasks = std::make_shared<Tasks>(count, task, state);
  for (int helper = 1; helper < count; ++helper)
    static_cast<ffi::ThreadPool*>(pool)->Schedule([tasks] { tasks->take(); });
  tasks->take();
  tasks->wait();
}

// A call's workspace: XLA lends scratch memory on GPUs alone.
class Memory {
 public:
  void* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    return blocks_.emplace_back(static_cast<char*>(::operator new(bytes, kAlignment))).get();
  }

 private:
  static constexpr std::align_val_t kAlignment{workspace_alignment(Device::kHost)};
  struct Free {
    void operator()(char* block) const { ::operator delete(block, kAlignment); }
  };
  std::vector<std::unique_ptr<char, Free>> blocks_;
};

}  // namespace

Placement::Placement(const Tensor& /*tensor*/, Precision precision, bool batch_invariant)
    : execution_(Execution::host(CallContext::current().parallel_for)) {
  execution_.precision = precision;  // changes nothing on the CPU, but the core checks it
  execution_.batch_invariant = batch_invariant;
}

DeviceGuard::DeviceGuard(std::int32_t device) : previous_(device) {}
DeviceGuard::~DeviceGuard() = default;

XLA_FFI_Error* run_call(const RegisteredOperator& of, XLA_FFI_CallFrame* frame) {
  thread_local const RegisteredOperator* called = nullptr;
  static auto* const handler =
      ffi::Ffi::Bind()
          .Ctx<ffi::ThreadPool>()
          .RemainingArgs()
          .RemainingRets()
          .Attrs()
          .To([](ffi::ThreadPool pool, ffi::RemainingArgs buffers, ffi::RemainingRets results,
                 ffi::Dictionary attributes) {
            CallContext context;
            context.parallel_for = {&run_tasks, &pool,
                                    static_cast<int>(std::max<int64_t>(pool.num_threads(), 1))};
            Memory memory;
            context.scratch = [&](std::size_t bytes) { return memory.allocate(bytes); };
            return run(*called, context, buffers, results, attributes);
          })
          .release();
  called = &of;
  return handler->Call(frame);
}

}  // namespace warpalign::binding
