// What became of a call of a replaced operator: computed here, or passed on, and why.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gpuopt::overriding {

enum class Reason : uint8_t {
  kTaken,
  kLayout,        // strides for which ATen's kernel is as fast or faster
  kSize,          // too small: the device time gained is less than the host time of a call
  kDtype,         // a dtype that no measurement covers, or that gpuopt does not support
  kAtenIsFaster,  // ATen's kernel is at the limit, or the plan chooses it
  kUnsupported,   // arguments that gpuopt does not support, or that ATen refuses
  kNotMeasured,   // no measurement covers the form, or ATen's kernel is newer (newer_aten.h)
};

constexpr std::array<const char*, 7> kReasonNames{
    "taken", "layout", "size", "dtype", "aten_is_faster", "unsupported", "not_measured"};
constexpr size_t kReasons = kReasonNames.size();

}  // namespace gpuopt::overriding
