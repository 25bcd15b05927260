// A C entry point to the emulated copies, for test_in_flight.py.
#include "ladder/in_flight.h"

using namespace gpuopt::in_flight;

extern "C" int run(const void* from, void* to, int64_t bytes, int access_bytes, int loads,
                   int warps, int sms) {
  return copy(from, to, bytes, Shape{access_bytes, loads, warps}, sms, nullptr);
}
