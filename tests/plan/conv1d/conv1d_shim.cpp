// C entry points to the plans of convolutions, for test_conv1d_plan.py.
#include "conv1d/fused_gradient/fused.h"
#include "conv1d_problem.h"

using namespace gpuopt;
using namespace gpuopt::conv1d;

namespace {

// Returns "name blocks threads shared_bytes", or the name alone for a path without a launch.
template <typename Path>
std::string describe(const Path& path) {
  return std::visit(
      [](const auto& plan) {
        std::string text = plan.kName;
        if constexpr (requires { plan.launch; }) {
          const LaunchShape& shape = plan.launch;
          for (int64_t number : {int64_t{shape.blocks}, int64_t{shape.threads},
                                 static_cast<int64_t>(shape.shared_bytes)}) {
            text += ' ' + std::to_string(number);
          }
        }
        return text;
      },
      path);
}

}  // namespace

extern "C" {

// One line for each part of the chosen plan. It ends with the part's offset in bytes. "rows" comes
// before the path of a plan through rows.
const char* chosen(const int64_t* problem, int pass, const int64_t* device) {
  const Plan plan =
      conv1d::plan(read_problem(problem), static_cast<Pass>(pass), read_device(device), device[2]);
  std::string lines;
  for (const Plan* part = &plan; part != nullptr; part = part->rest.get()) {
    if (plan.through_rows) lines += std::string(kRowsName) + ' ';
    lines += std::visit([](const auto& path) { return describe(path); }, part->path) + ' ' +
             std::to_string(part->offset) + '\n';
  }
  return answer(lines);
}

// One line for each path that supports the problem.
const char* supporting(const int64_t* problem, int pass, const int64_t* device) {
  std::string lines;
  for_each_path(read_problem(problem), static_cast<Pass>(pass), read_device(device),
                [&](const auto& path, const Problem&) { lines += describe(path) + '\n'; });
  return answer(lines);
}

// The fused gradient of a problem, and the members of the input's gradient as a Signal. Returns
// "has_vectors values blocks splits parts part_size tiles begin end", or nothing if the problem is
// not supported.
const char* fused(const int64_t* problem, const int64_t* result) {
  const Signal to{nullptr, result[1], result[2], result[3], result[4], result[5]};
  const auto plan = FusedPlan::make(read_problem(problem), to);
  if (!plan) return answer("");
  std::string text;
  const FusedArgs& args = plan->args;
  for (int64_t number :
       {int64_t{plan->has_vectors}, int64_t{plan->values}, int64_t{plan->launch.blocks},
        int64_t{args.splits}, int64_t{args.parts.divisor}, int64_t{args.part_size},
        int64_t{args.tiles}, int64_t{args.begin}, int64_t{args.end}}) {
    text += std::to_string(number) + ' ';
  }
  return answer(text);
}

}  // extern "C"
