// A call of XLA's foreign function interface, as far as it is the same on every device.
#pragma once

#include <xla/ffi/api/ffi.h>

#include "call_context.h"
#include "registry.h"

namespace warpalign::binding {

namespace ffi = xla::ffi;

// Runs an operator on XLA's buffers, with what the device's handler has put into the context. Attributes have
// the names of the schema's parameters. Errors of arguments are InvalidArgument, with the operator's message.
ffi::Error run(const RegisteredOperator& of, CallContext& context, const ffi::RemainingArgs& buffers,
               const ffi::RemainingRets& results, const ffi::Dictionary& attributes);

}  // namespace warpalign::binding
