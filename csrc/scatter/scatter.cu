// Launches the kernel that a plan names.
#include "scatter/scatter.cuh"

namespace gpuopt::scatter {

namespace {

template <typename T, int V>
cudaError_t launch_values(const Plan& plan, cudaStream_t stream) {
  return plan.is_extremum
             ? launch_kernel(reduce_few<T, V, ExtremumState<T, V>>, plan.shape, stream, plan.args)
             : launch_kernel(reduce_few<T, V, SumState<T, V>>, plan.shape, stream, plan.args);
}

template <typename T>
cudaError_t launch_type(const Plan& plan, cudaStream_t stream) {
  constexpr int kWord = 4 / static_cast<int>(sizeof(T));
  if (plan.values == kVecSize<T>) return launch_values<T, kVecSize<T>>(plan, stream);
  if constexpr (kWord > 1) {
    if (plan.values == kWord) return launch_values<T, kWord>(plan, stream);
  }
  return launch_values<T, 1>(plan, stream);
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
