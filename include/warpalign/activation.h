// The function between a joint network's sum and its output layer.
#pragma once

namespace warpalign {

enum class Activation { kRelu, kTanh };

}  // namespace warpalign
