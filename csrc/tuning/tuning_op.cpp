// Reads and sets the limits of plans, keeps the problems of calls, and makes plans of them again:
// gpuopt_ladder.limits, set_limit, record_problems and plan. For python -m benchmarks tune, and for
// the test that holds its evidence. None of these needs a GPU.
#include <torch/library.h>

#include <functional>

#include "common/tuning.h"
#include "dot/dot_plan.h"
#include "elementwise/elementwise_plan.h"
#include "index_add/index_add_plan.h"
#include "reduce/reduce_plan.h"
#include "rows/rows_plan.h"
#include "scan/scan_plan.h"
#include "selective_scan/selective_scan_plan.h"
#include "spmm/spmm_plan.h"
#include "transpose/transpose_plan.h"
#include "upsample/upsample_backward_plan.h"
#include "upsample/upsample_forward_plan.h"

namespace gpuopt {
namespace {

using Planner = std::function<std::string(Values&, const Device&)>;

template <typename Problem, typename Plans>
Planner planner(Plans plans) {
  return [plans](Values& values, const Device& device) {
    Problem problem;
    assign(problem, values);
    return plans(problem, device);
  };
}

// The plans of each part of a problem, as a list.
template <typename ForEach>
std::string listed(ForEach for_each) {
  std::string all;
  for_each([&](const auto& plan) { all += (all.empty() ? "" : ", ") + to_json(plan); });
  return '[' + all + ']';
}

// What common/tuning.h's record() names.
const std::map<std::string, Planner, std::less<>>& planners() {
  static const std::map<std::string, Planner, std::less<>> found{
      {"dot", planner<dot::Problem>([](const auto& problem, const Device& device) {
         return to_json(dot::make_plan(problem, device));
       })},
      {"elementwise.1", planner<elementwise::Problem<1>>([](const auto& p, const Device& device) {
         return to_json(elementwise::make_plan(p, device).launches);
       })},
      {"elementwise.2", planner<elementwise::Problem<2>>([](const auto& p, const Device& device) {
         return to_json(elementwise::make_plan<elementwise::Types::kAll>(p, device).launches);
       })},
      {"index_add", planner<index_add::Problem>([](const auto& problem, const Device& device) {
         return listed([&](const auto& visit) {
           (void)index_add::for_each_plan(
               problem, device, limits<index_add::Tuning>(),
               [&](const auto& plan) { return visit(plan), cudaSuccess; });
         });
       })},
      {"reduce", planner<reduce::Problem>([](const auto& problem, const Device& device) {
         return to_json(reduce::make_plan(problem, device));
       })},
      {rows::MapProblem::kPlanner,
       planner<rows::MapProblem>(
           [](const auto& problem, const Device&) { return to_json(rows::plan(problem)); })},
      {rows::ReduceProblem::kPlanner,
       planner<rows::ReduceProblem>(
           [](const auto& problem, const Device&) { return to_json(rows::plan(problem)); })},
      {"scan", planner<scan::Problem>([](const auto& problem, const Device& device) {
         return listed([&](const auto& visit) {
           scan::for_each_plan(problem, device, limits<scan::Tuning>(), visit);
         });
       })},
      {"selective_scan.backward",
       planner<selective::Problem>([](const auto& problem, const Device&) {
         return to_json(selective::plan_backward(problem, {}));
       })},
      {"selective_scan.forward",
       planner<selective::Problem>([](const auto& problem, const Device&) {
         return to_json(selective::plan_forward(problem));
       })},
      {spmm::ProductProblem::kPlanner,
       planner<spmm::ProductProblem>(
           [](const auto& problem, const Device&) { return to_json(spmm::plan(problem)); })},
      {"transpose", planner<transpose::Problem>([](const auto& problem, const Device&) {
         return to_json(transpose::make_plan(problem));
       })},
      {"upsample.backward",
       planner<upsample::Problem>([](const auto& problem, const Device& device) {
         return to_json(upsample::plan_backward(problem, device));
       })},
      {"upsample.forward",
       planner<upsample::Problem>([](const auto& problem, const Device& device) {
         return to_json(upsample::plan_forward(problem, device));
       })},
  };
  return found;
}

// Calls f with the limits of a room.
template <typename F>
void with_limits(std::string_view room, const F& f) {
  if (room == "dot") return f(limits<dot::Tuning>());
  if (room == "elementwise") return f(limits<elementwise::Tuning>());
  if (room == "index_add") return f(limits<index_add::Tuning>());
  if (room == "reduce") return f(limits<reduce::Tuning>());
  if (room == "rows") return f(limits<rows::Tuning>());
  if (room == "scan") return f(limits<scan::Tuning>());
  if (room == "selective_scan") return f(limits<selective::Tuning>());
  if (room == "transpose") return f(limits<transpose::Tuning>());
  if (room == "upsample") return f(limits<upsample::Tuning>());
  TORCH_CHECK_VALUE(false, "gpuopt_ladder: no room of limits is called \"", room, "\"");
}

std::string limits_of(std::string_view room) {
  std::string text;
  with_limits(room, [&](const auto& found) { text = to_json(found); });
  return text;
}

void set_limit(std::string_view room, std::string_view name, double value) {
  Values values{{{std::string(name), value}}, {}};
  with_limits(room, [&](auto& found) { assign(found, values); });
  TORCH_CHECK_VALUE(!values.used.empty(), "gpuopt_ladder::set_limit: ", room, " has no limit \"",
                    name, "\"");
}

// Starts to keep the problems of calls, or stops. Returns what was kept: each planner's name,
// followed by its problem.
std::vector<std::string> record_problems(bool on) {
  std::vector<std::string> found;
  for (auto& [planner, problem] : recording().problems) {
    found.push_back(planner);
    found.push_back(std::move(problem));
  }
  recording() = {on, {}};
  return found;
}

// `paths` and `numbers` are what describe() calls the members of a problem, and their values. The
// problem must be one that record_problems kept: no operator has checked its sizes.
std::string plan_of(const std::string& name, const std::vector<std::string>& paths,
                    const std::vector<double>& numbers, int64_t sms, int64_t shared_bytes,
                    bool has_clusters) {
  const auto found = planners().find(name);
  TORCH_CHECK_VALUE(found != planners().end(), "gpuopt_ladder::plan: no planner is called \"", name,
                    "\"");
  TORCH_CHECK_VALUE(paths.size() == numbers.size(),
                    "gpuopt_ladder::plan: expected a number for each of ", paths.size(),
                    " paths, got ", numbers.size());
  Values values;
  for (size_t i = 0; i < paths.size(); ++i) values.numbers[paths[i]] = numbers[i];
  const Device device{static_cast<int>(sms), static_cast<int>(shared_bytes), has_clusters};
  std::string plan = found->second(values, device);
  for (const auto& [path, number] : values.numbers) {
    TORCH_CHECK_VALUE(values.used.contains(path), "gpuopt_ladder::plan: a problem of ", name,
                      " has no member ", path);
  }
  return plan;
}

TORCH_LIBRARY_FRAGMENT(gpuopt_ladder, m) {
  m.def("limits(str room) -> str", limits_of);
  m.def("set_limit(str room, str name, float value) -> ()", set_limit);
  m.def("record_problems(bool on) -> str[]", record_problems);
  m.def(
      "plan(str planner, str[] paths, float[] numbers, int sms, int shared_bytes, bool "
      "has_clusters) -> str",
      plan_of);
}

}  // namespace
}  // namespace gpuopt
