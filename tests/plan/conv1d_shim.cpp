// C entry points to the plans of convolutions, for test_conv1d_plan.py.
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

// One line for each part of the chosen plan. It ends with the part's offset in bytes.
const char* chosen(const int64_t* problem, int pass, const int64_t* device) {
  const Plan plan =
      conv1d::plan(read_problem(problem), static_cast<Pass>(pass), read_device(device));
  std::string lines;
  for (const Plan* part = &plan; part != nullptr; part = part->rest.get()) {
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

}  // extern "C"
