// The CUDA kernel of gpuopt_ladder::matmul.
#include "binding/ladder_cuda.h"
#include "matmul/binding/matmul_ops.h"
#include "matmul/ladder/matmul_ladder.h"

namespace gpuopt::matmul {
namespace {

using at::Tensor;

int capability() {
  int major = 0, minor = 0;
  const auto device = c10::cuda::current_device();
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return 10 * major + minor;
}

void check_gpu(const LadderCall& call) {
  const int device_capability = capability();
  const bool is_hopper_only = call.is_from("wgmma");
  int least = 0, shared_kb = 48;
  if (call.is_from("three_tf32")) least = 80;
  if (is_hopper_only || call.is("bulk_copies")) least = 90;
  TORCH_CHECK_NOT_IMPLEMENTED(
      is_hopper_only ? device_capability == least : device_capability >= least, call.op_and_step(),
      ": needs a GPU of compute capability ", least / 10, ".", least % 10,
      is_hopper_only ? "" : " or more", ", got ", device_capability / 10, ".",
      device_capability % 10);
  if (call.is("warp_tiles") || call.is("split_k")) shared_kb = kWarpTilesKb;
  if (call.is("bulk_copies")) shared_kb = kBulkCopiesKb;
  if (call.is("three_tf32")) shared_kb = kThreeTf32Kb;
  if (call.is("swizzled")) shared_kb = kSwizzledKb;
  const int bytes = current_device().shared_bytes;
  TORCH_CHECK_NOT_IMPLEMENTED(bytes >= shared_kb << 10, call.op_and_step(), ": needs a GPU with ",
                              shared_kb, " KB of shared memory for a block, got ", bytes >> 10);
}

// Whether the step reads rows by 16 bytes from their beginning on, whatever their layout.
bool needs_aligned_rows(const LadderCall& call) {
  return call.is("vectors") || call.is("bulk_copies") || call.is_from("wgmma");
}

// The distance of rows. One row has any.
int64_t pitch_of(const Tensor& matrix) {
  constexpr int64_t kAnyVec = 8;
  return matrix.size(0) > 1 ? matrix.stride(0) : ceil_div(matrix.size(1), kAnyVec) * kAnyVec;
}

void check_matrix(const LadderCall& call, NamedTensor argument) {
  const auto& [name, matrix] = argument;
  TORCH_CHECK(matrix.dim() == 2, call.op(), ": ", name,
              " must be a matrix: expected 2 dimensions, got shape ", matrix.sizes());
  if (call.is_from("ldmatrix") && !call.is("three_tf32_wgmma")) {
    call.check_dtype(argument, {at::kHalf, at::kBFloat16});
  } else {
    call.check_dtype(argument, {at::kFloat});
  }
  const bool has_rows = matrix.size(1) <= 1 || matrix.stride(1) == 1;
  TORCH_CHECK(
      matrix.numel() == 0 || (has_rows && pitch_of(matrix) >= matrix.size(1)), call.op(), ": ",
      name,
      " must have rows of neighbouring elements that do not overlap: expected strides of at "
      "least ",
      matrix.size(1), " and 1, got ", matrix.strides(), " of shape ", matrix.sizes());
  TORCH_CHECK(matrix.size(0) <= kMostRows && matrix.size(1) <= kMostRows, call.op(), ": ", name,
              " must have at most 2^30 rows and columns, got shape ", matrix.sizes());
  if (matrix.numel() == 0 || !needs_aligned_rows(call)) return;
  call.check_vecs(argument);
  const int64_t vec = kAccessBytes / matrix.element_size();
  TORCH_CHECK(pitch_of(matrix) % vec == 0, call.op_and_step(), ": ", name,
              " must have rows that begin at multiples of ", kAccessBytes,
              " bytes: expected a multiple of ", vec, " as stride of its rows, got strides ",
              matrix.strides());
}

Tensor matmul_step(const LadderCall& call, const Tensor& a, const Tensor& b) {
  check_same_device(call.op(), {{"a", a}, {"b", b}});
  check_matrix(call, {"a", a});
  check_matrix(call, {"b", b});
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), call.op(),
              ": b must have the dtype of a: expected ", a.scalar_type(), ", got ",
              b.scalar_type());
  TORCH_CHECK(a.size(1) == b.size(0), call.op(),
              ": b must have as many rows as a has columns: expected ", a.size(1), ", got shape ",
              b.sizes());
  check_gpu(call);
  const Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  LadderProblem problem;
  problem.a = a.const_data_ptr();
  problem.b = b.const_data_ptr();
  problem.out = out.mutable_data_ptr();
  problem.dtype = to_dtype(call.op(), a.scalar_type());
  problem.m = static_cast<int32_t>(a.size(0));
  problem.n = static_cast<int32_t>(b.size(1));
  problem.k = static_cast<int32_t>(a.size(1));
  problem.a_pitch = pitch_of(a);
  problem.b_pitch = pitch_of(b);
  problem.sms = sm_count();
  launch_step(call, ladder_matmul, problem);
  return out;
}

Tensor matmul_production(const Tensor& a, const Tensor& b) { return call(Matmul{a, b, "3xtf32"}); }

TORCH_LIBRARY_IMPL(gpuopt_ladder, CUDA, m) {
  impl_ladder(m, "matmul", matmul_production, matmul_step);
}

}  // namespace
}  // namespace gpuopt::matmul
