// The C entry point to the plans of scans, for test_scan_plan.py.
#include "scan_problem.h"

using namespace gpuopt;
using namespace gpuopt::scan;

// Returns the plans of all launches as JSON. The pointer is valid until the next call.
extern "C" const char* plans(const Given* given, int64_t launch_limit, int64_t has_clusters) {
  static std::string kept;
  Device device;
  device.has_clusters = has_clusters != 0;
  Tuning tuning;
  tuning.launch_limit = launch_limit;
  kept = plans_as_json(make_problem(*given), device, tuning, [](const Plan&) {});
  return kept.c_str();
}
