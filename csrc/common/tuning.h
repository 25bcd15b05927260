// The limits that a room's plans use, and the problems that they were asked for. Plain host C++.
//
// A product never changes the limits. The tuner sets one at a time (gpuopt_ladder.set_limit), and
// keeps the problems of calls, for which tests make the plans again without a GPU.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/describe.h"

namespace gpuopt {

template <typename Tuning>
Tuning& limits() {
  static Tuning found;
  return found;
}

struct Recording {
  bool is_on = false;
  std::vector<std::pair<std::string, std::string>> problems;  // a planner, a problem as JSON
};

inline Recording& recording() {
  static Recording found;
  return found;
}

template <typename Problem>
void record(const char* planner, const Problem& problem) {
  if (recording().is_on) recording().problems.emplace_back(planner, to_json(problem));
}

}  // namespace gpuopt
