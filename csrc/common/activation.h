// Functions that operators apply to their results before these are rounded.
#pragma once

#include <cstdint>

namespace gpuopt {

enum class Activation : uint8_t { kNone, kRelu, kSilu, kGelu };

}  // namespace gpuopt
