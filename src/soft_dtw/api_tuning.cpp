// Made by tools/make_tuning.py from tuning/soft_dtw.json: change that file, and run `make tuning`.
#include "soft_dtw/tuning.h"
#include "warpalign/tuning.h"

namespace warpalign {

bool soft_dtw_threshold(int index, Threshold* out) {
  return detail::read_threshold(index, out, detail::soft_dtw::cuda_tuning_fields,
                                detail::soft_dtw::cpu_tuning_fields);
}

bool force_soft_dtw_threshold(const char* name, int value) {
  return detail::force_threshold(name, value, detail::soft_dtw::cuda_tuning_fields,
                                 detail::soft_dtw::cpu_tuning_fields);
}

}  // namespace warpalign
