// Limits of plans that tests lower, by the names of their fields. All others have the values of the
// product. limits.py calls what a shim exports:
//
//   extern "C" void reset_limits() { tuning = {}; }
//   extern "C" int set_limit(const char* name, int64_t value) {
//     GPUOPT_LIMIT(tuning, launch_limit)
//     return 0;
//   }
#pragma once

#include <cstdint>
#include <string_view>

// Sets a field and returns 1, if it has this name.
#define GPUOPT_LIMIT(limits, field)                                \
  if (std::string_view(name) == #field) {                          \
    (limits).field = static_cast<decltype((limits).field)>(value); \
    return 1;                                                      \
  }
