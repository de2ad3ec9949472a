// On CUDA the work goes to XLA's stream, on the device that XLA names. Nothing waits for it.
#include <cuda_runtime.h>

#include <memory>
#include <new>

#include "call_xla.h"
#include "execution.h"

namespace warpalign::binding {
namespace {

// Aligned here: XLA does not promise the alignment that a workspace needs.
void* scratch_of(ffi::ScratchAllocator& scratch, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  constexpr std::size_t kAlignment = workspace_alignment(Device::kCuda);
  const auto memory = scratch.Allocate(bytes + kAlignment);
  if (!memory || *memory == nullptr) throw std::bad_alloc();
  std::size_t space = bytes + kAlignment;
  void* place = *memory;
  return std::align(kAlignment, bytes, place, space);
}

}  // namespace

Placement::Placement(const Tensor& /*tensor*/, Precision precision, bool batch_invariant) {
  const CallContext& context = CallContext::current();
  guard_.emplace(context.device);
  execution_ = Execution::cuda(context.device, context.stream, precision);
  execution_.batch_invariant = batch_invariant;
}

DeviceGuard::DeviceGuard(std::int32_t device) : previous_(device) {
  if (cudaGetDevice(&previous_) == cudaSuccess && previous_ != device) cudaSetDevice(device);
}
DeviceGuard::~DeviceGuard() {
  if (std::int32_t now = 0; cudaGetDevice(&now) == cudaSuccess && now != previous_) cudaSetDevice(previous_);
}

// Not for command buffers: a recorded call would keep the address of scratch memory that XLA gives to others.
XLA_FFI_Error* run_call(const RegisteredOperator& of, XLA_FFI_CallFrame* frame) {
  thread_local const RegisteredOperator* called = nullptr;
  static auto* const handler =
      ffi::Ffi::Bind()
          .Ctx<ffi::PlatformStream<cudaStream_t>>()
          .Ctx<ffi::DeviceOrdinal>()
          .Ctx<ffi::ScratchAllocator>()
          .RemainingArgs()
          .RemainingRets()
          .Attrs()
          .To([](cudaStream_t stream, std::int32_t device, ffi::ScratchAllocator scratch,
                 ffi::RemainingArgs buffers, ffi::RemainingRets results, ffi::Dictionary attributes) {
            CallContext context;
            context.stream = stream;
            context.device = device;
            context.scratch = [&](std::size_t bytes) { return scratch_of(scratch, bytes); };
            return run(*called, context, buffers, results, attributes);
          })
          .release();
  called = &of;
  return handler->Call(frame);
}

}  // namespace warpalign::binding
