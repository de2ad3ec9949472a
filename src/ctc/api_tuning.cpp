// Made by tools/make_tuning.py from tuning/ctc.json: change that file, and run `make tuning`.
#include "ctc/tuning.h"
#include "warpalign/tuning.h"

namespace warpalign {

bool ctc_threshold(int index, Threshold* out) {
  return detail::read_threshold(index, out, detail::ctc::cuda_tuning_fields, detail::ctc::cpu_tuning_fields);
}

bool force_ctc_threshold(const char* name, int value) {
  return detail::force_threshold(name, value, detail::ctc::cuda_tuning_fields,
                                 detail::ctc::cpu_tuning_fields);
}

}  // namespace warpalign
