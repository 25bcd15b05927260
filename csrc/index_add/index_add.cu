// gpuopt::index_add: stretches of the index, and slices of the rest, that one launch takes; float32
// and float64.
#include "index_add/index_add.h"
#include "index_add/index_add_launch.cuh"
#include "index_add/index_add_slices.h"

namespace gpuopt::index_add {

cudaError_t add(const Problem& problem, const Device& device, Workspace& workspace,
                cudaStream_t stream) {
  const Path path = choose_path(problem, device);
  return for_each_stretch(problem, [&](const Problem& stretch) {
    return for_each_slice(stretch, [&](const Problem& slice) {
      const Plan plan = make_plan(slice, path, device);
      workspace.release();
      const Addition addition{slice, device, workspace, stream};
      if (is_half(slice.dtype)) return add_halves(addition, plan);
      if (!is_inexact(slice.dtype)) return add_integers(addition, plan);
      return slice.dtype == DType::kFloat32 ? launch<float>(addition, plan)
                                            : launch<double>(addition, plan);
    });
  });
}

}  // namespace gpuopt::index_add
