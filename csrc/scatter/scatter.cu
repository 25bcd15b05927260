// Launches the kernel that a plan names.
#include "scatter/scatter.cuh"

namespace gpuopt::scatter {

namespace {

template <typename T, int V>
cudaError_t launch_units(const Plan& plan, cudaStream_t stream) {
  return plan.is_extremum
             ? launch_kernel(reduce_few<T, V, ExtremumState<T, V>>, plan.shape, stream, plan.args)
             : launch_kernel(reduce_few<T, V, SumState<T, V>>, plan.shape, stream, plan.args);
}

template <typename T>
cudaError_t launch_type(const Plan& plan, cudaStream_t stream) {
  return plan.in_vecs ? launch_units<T, kVecSize<T>>(plan, stream)
                      : launch_units<T, 1>(plan, stream);
}

}  // namespace

cudaError_t launch(const Plan& plan, cudaStream_t stream) {
  switch (plan.dtype) {
    case DType::kFloat16:
      return launch_type<__half>(plan, stream);
    case DType::kBFloat16:
      return launch_type<__nv_bfloat16>(plan, stream);
    case DType::kFloat32:
      return launch_type<float>(plan, stream);
    case DType::kFloat64:
      return launch_type<double>(plan, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace gpuopt::scatter
