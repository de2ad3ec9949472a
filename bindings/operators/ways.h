// The way that a process has asked an operator to take, for tests and measurements.
#pragma once

namespace warpalign::binding {

// The operators that have ways, and what has none.
enum class Operator { kSoftDtw, kTransducer, kTransducerJoint, kCtc, kSinkhorn, kLstm, kOther };

// Null: the plan chooses.
const char* forced_way(Operator of);

}  // namespace warpalign::binding
