// The thresholds by which an operator chooses among its ways to run a call, such as the number of strips up
// to which a pair is swept from both ends. Results are correct whatever they are; times are not the same.
// Their values are measured for a class of devices (docs/developer/tuning.md). Benchmarks force them to
// measure both sides, and tests to reach a way at small sizes. No other program needs this header.
#pragma once

#include <climits>

namespace warpalign {

// In the place of a forced value: the one that was measured for the device.
inline constexpr int kMeasuredThreshold = INT_MIN;

struct Threshold {
  char name[64];  // which ends with a null character
  int forced;     // kMeasuredThreshold: it is not forced
};

// Writes threshold number `index` of soft_dtw() and soft_dtw_jvp(). Numbers begin with 0; their order means
// nothing. Returns false, and writes nothing, where there is no such threshold.
bool soft_dtw_threshold(int index, Threshold* out);
// From now on every call of this process has `value` for this threshold, whatever the device; with
// kMeasuredThreshold it has the measured one again. Returns false where there is no threshold of this name.
// Not while another thread is in a call, nor between the query of a call's workspace and the call.
bool force_soft_dtw_threshold(const char* name, int value);

// The same of the transducer's functions: losses, joint network, alignments and decoding.
bool transducer_threshold(int index, Threshold* out);
bool force_transducer_threshold(const char* name, int value);
// The same of CTC's functions and of alignments.
bool ctc_threshold(int index, Threshold* out);
bool force_ctc_threshold(const char* name, int value);
// The same of transport's functions: sinkhorn(), its derivatives, anchors and graphs.
bool transport_threshold(int index, Threshold* out);
bool force_transport_threshold(const char* name, int value);
// The same of lstm() and lstm_backward().
bool recurrent_threshold(int index, Threshold* out);
bool force_recurrent_threshold(const char* name, int value);

}  // namespace warpalign
