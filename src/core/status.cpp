#include "warpalign/status.h"

#include <iomanip>
#include <sstream>

namespace warpalign {

std::string to_string(const Status& status) {
  if (status.ok()) return "ok";
  std::ostringstream text;
  if (*status.argument) text << status.argument << ": ";
  if (status.code != StatusCode::kInvalidArgument) {
    text << status.message;
    return text.str();
  }
  text << "expected " << status.message << ", got " << std::setprecision(17) << status.value;
  if (status.batch_index >= 0) text << " at index " << status.batch_index;
  return text.str();
}

}  // namespace warpalign
