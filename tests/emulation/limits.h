// Limits of plans that tests lower, by the names of their fields. All others have the values of the
// product. limits.py calls what a shim exports:
//
//   extern "C" void reset_limits() { tuning = {}; }
//   extern "C" int set_limit(const char* name, int64_t value) {
//     return gpuopt::sets_limit(tuning, name, value);
//   }
#pragma once

#include "common/describe.h"

namespace gpuopt {

// Sets a field. Whether there is one of this name.
template <typename Limits>
bool sets_limit(Limits& limits, const char* name, int64_t value) {
  Values values{{{name, static_cast<double>(value)}}, {}};
  assign(limits, values);
  return !values.used.empty();
}

}  // namespace gpuopt
