// Made by tools/make_tuning.py from tuning/transducer.json: change that file, and run `make tuning`.
#include "transducer/tuning.h"
#include "warpalign/tuning.h"

namespace warpalign {

bool transducer_threshold(int index, Threshold* out) {
  return detail::read_threshold(index, out, detail::transducer::cuda_tuning_fields,
                                detail::transducer::cpu_tuning_fields);
}

bool force_transducer_threshold(const char* name, int value) {
  return detail::force_threshold(name, value, detail::transducer::cuda_tuning_fields,
                                 detail::transducer::cpu_tuning_fields);
}

}  // namespace warpalign
