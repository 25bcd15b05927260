// Prints all launches of a plan.
#pragma once

#include "common/describe.h"

namespace gpuopt {

// Returns a JSON array of the launches, which the next call overwrites.
template <typename Plan>
const char* launches_to_json(const Plan& plan) {
  static std::string json;
  json = "[" + to_json(plan);
  for (const Plan* part = plan.rest.get(); part != nullptr; part = part->rest.get()) {
    json += ", " + to_json(*part);
  }
  json += "]";
  return json.c_str();
}

}  // namespace gpuopt
