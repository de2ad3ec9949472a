// Made by tools/make_tuning.py from tuning/recurrent.json: change that file, and run `make tuning`.
#include "recurrent/tuning.h"
#include "warpalign/tuning.h"

namespace warpalign {

bool recurrent_threshold(int index, Threshold* out) {
  return detail::read_threshold(index, out, detail::recurrent::cuda_tuning_fields);
}

bool force_recurrent_threshold(const char* name, int value) {
  return detail::force_threshold(name, value, detail::recurrent::cuda_tuning_fields);
}

}  // namespace warpalign
