// Problems that are too large for one launch run in parts. Plain host C++.
#pragma once

namespace gpuopt {

// Calls use(plan) for the plan of each part, in order. make(problem) returns an optional plan,
// which is missing if the problem is too large for one launch. Then halve(problem, first, second)
// splits it. Plans are made one after another, because there may be many.
template <typename Problem, typename Make, typename Use>
void for_each_part(const Problem& problem, const Make& make, const Use& use) {
  if (const auto plan = make(problem)) return use(*plan);
  Problem first, second;
  halve(problem, first, second);
  for_each_part(first, make, use);
  for_each_part(second, make, use);
}

}  // namespace gpuopt
