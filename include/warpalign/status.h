// Status: how every call of the core reports its outcome. The core throws nothing and prints nothing.
#pragma once

#include <string>

namespace warpalign {

enum class StatusCode {
  kOk = 0,
  kInvalidArgument,  // an argument breaks the documented contract
  kUnsupported,      // valid, but not available in this build or on this device
  kDeviceError,      // the CUDA runtime refused a call (message is the runtime's own text)
};

// Cheap to copy: both strings are static or owned by the CUDA runtime, never freed by the caller.
struct [[nodiscard]] Status {
  StatusCode code = StatusCode::kOk;
  const char* argument = "";  // name of the offending argument, "" when none is to blame
  const char* message = "";   // what was expected
  // With kInvalidArgument: the value that came, and the batch element that it belongs to (-1: to no single
  // one).
  double value = 0.0;
  int batch_index = -1;

  [[nodiscard]] constexpr bool ok() const { return code == StatusCode::kOk; }

  static constexpr Status invalid(const char* argument, const char* expected, double came, int batch = -1) {
    return {StatusCode::kInvalidArgument, argument, expected, came, batch};
  }
  static constexpr Status unsupported(const char* argument, const char* message) {
    return {StatusCode::kUnsupported, argument, message, 0.0, -1};
  }
  static constexpr Status device_error(const char* message) {
    return {StatusCode::kDeviceError, "", message, 0.0, -1};
  }
};

// A line for people: "ok"; "x_lengths: expected between 1 and N, got 9 at index 2"; "execution:
// this build of warpalign has no CUDA path"; the CUDA runtime's own text.
std::string to_string(const Status& status);

}  // namespace warpalign
