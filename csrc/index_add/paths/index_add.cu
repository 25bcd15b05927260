// gpuopt::index_add: chooses the path of the problem, then plans and launches each of its parts.
#include "index_add/device/index_add_launch.cuh"
#include "index_add/index_add.h"
#include "index_add/index_add_slices.h"

namespace gpuopt::index_add {
namespace {

// The launchers of a type's plans are instantiated in index_add_float.cu, _half.cu and _integer.cu.
cudaError_t launch_plan(const Plan& plan, const Addition& addition) {
  return dispatch_storage(addition.problem.dtype, [&](auto value) {
    using T = decltype(value);
    if constexpr (kCategory<T> == Category::kComplex) {
      return cudaErrorInvalidValue;  // complex numbers are two real parts
    } else {
      return std::visit([&](const auto& one) { return launch<T>(one, addition); }, plan);
    }
  });
}

}  // namespace

cudaError_t add(const Problem& problem, const Device& device, Workspace& workspace,
                cudaStream_t stream) {
  const Layout layout = make_layout(problem);
  const Path path = choose_path(problem, layout, device);
  return for_each_part(problem, layout, [&](const Problem& part, const Layout& part_layout) {
    const Plan plan = make_plan(path, part, part_layout, device);
    workspace.release();
    return launch_plan(plan, Addition{part, part_layout, device, workspace, stream});
  });
}

}  // namespace gpuopt::index_add
