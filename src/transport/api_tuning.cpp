// Made by tools/make_tuning.py from tuning/transport.json: change that file, and run `make tuning`.
#include "transport/tuning.h"
#include "warpalign/tuning.h"

namespace warpalign {

bool transport_threshold(int index, Threshold* out) {
  return detail::read_threshold(index, out, detail::transport::cuda_tuning_fields,
                                detail::transport::cpu_tuning_fields);
}

bool force_transport_threshold(const char* name, int value) {
  return detail::force_threshold(name, value, detail::transport::cuda_tuning_fields,
                                 detail::transport::cpu_tuning_fields);
}

}  // namespace warpalign
