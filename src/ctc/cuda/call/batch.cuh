// A batch in kernels: true lengths, labels, and the strides of logits.
#pragma once

#include <cstdint>

#include "core/anywhere.h"
#include "warpalign/integers.h"

namespace warpalign::detail::ctc {

inline constexpr int kNoLabel = -1;       // after the last label, or before the first
inline constexpr int kInvalidLabel = -2;  // not a class, or the blank

struct Batch {
  int batch, frames, classes;  // B, T, C
  // The most labels of an utterance that are read: U, or T + 1 if that is less, because more than T labels
  // have no path.
  int labels;
  int extent;  // U, or an upper bound of it for flat targets
  int blank;
  int star;  // -1: none
  Integers logit_lengths, target_lengths, targets;
  std::int64_t target_stride;  // from utterance to utterance; 0 for flat targets
  const std::int64_t*
      offsets;  // (B + 1,): the first label of each utterance in flat targets; null: padded targets
  std::int64_t target_count;  // flat targets: the number of labels in memory
  std::int64_t stride[3];     // of logits, in elements: utterance, frame, class
  bool log_probs;
};

// v[index].
__device__ __forceinline__ std::int64_t integer_at(const Integers& v, std::int64_t index) {
  if (v.type == IntegerType::kInt64) return static_cast<const std::int64_t*>(v.data)[index];
  return static_cast<const std::int32_t*>(v.data)[index];
}

// lengths[b] clamped to [0, most]; `most` if there are no lengths.
__device__ __forceinline__ int true_length(const Integers& lengths, int b, int most) {
  if (!lengths.data) return most;
  const std::int64_t length = integer_at(lengths, b);
  return length < 0 ? 0 : length > most ? most : static_cast<int>(length);
}

// An utterance's true extents and its labels.
struct Utterance {
  int frames, labels;
  std::int64_t first;  // index of label 0 in batch.targets
  bool fits;           // whether all its labels are in batch.targets

  // Label k of 0 ... labels - 1: a class, star, or kInvalidLabel; kNoLabel for other k.
  [[nodiscard]] __device__ __forceinline__ int label(const Batch& batch, int k) const {
    if (k < 0 || k >= labels) return kNoLabel;
    if (!fits) return kInvalidLabel;
    const std::int64_t label = integer_at(batch.targets, first + k);
    if (batch.star >= 0 && label == batch.star) return batch.star;
    if (label < 0 || label >= batch.classes || label == batch.blank) return kInvalidLabel;
    return static_cast<int>(label);
  }
};

__device__ __forceinline__ Utterance utterance_at(const Batch& batch, int b) {
  Utterance u;
  u.frames = true_length(batch.logit_lengths, b, batch.frames);
  u.labels = true_length(batch.target_lengths, b, batch.labels);
  u.first = batch.offsets ? batch.offsets[b] : b * batch.target_stride;
  u.fits = !batch.offsets || u.first + u.labels <= batch.target_count;
  return u;
}

}  // namespace warpalign::detail::ctc
