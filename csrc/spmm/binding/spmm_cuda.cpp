// The CUDA kernels of sparse products: describe tensors as problems, and launch their plans.
#include <ATen/ATen.h>

#include "binding/unfilled.h"
#include "spmm/binding/spmm_launch.h"

namespace gpuopt::spmm {
namespace {

// A product with dense rows. The problem and the tensors that it points to.
template <typename Op>
struct DenseCall {
  DenseCall(const Op& op, const Shape& shape) : a(op, shape), dense(op.dense, shape.row_dim) {
    check_memory(name_of<Op>(), {{"dense", op.dense}});
    value = contiguous(op.value);
    check_memory(name_of<Op>(), {{"value", value}});
    for (const SymInt& size : shape.result(op.dense)) sizes.push_back(known(size));
    problem.matrix = a.matrix;
    problem.dtype = to_dtype(name_of<Op>(), op.dense.scalar_type());
    problem.batches = dense.tensor.size(0);
    problem.features = dense.tensor.size(2);
    problem.value = data_of(value);
    problem.heads = shape.has_heads ? value.size(1) : 1;
    problem.dense = dense.rows;
  }

  bool is_empty() const {
    return c10::multiply_integers(sizes) == 0 || problem.matrix.entries == 0;
  }

  void run(const Tensor& result) {
    problem.out = written(result, problem.matrix.rows, problem.features);
    rows::run(name_of<Op>(), problem);
  }

  MatrixOperand a;
  RowsOperand dense;
  Tensor value;
  at::DimVector sizes;  // of the result
  ReduceProblem problem;
};

Reduce to_reduce(std::string_view name) {
  if (name == "mean") return Reduce::kMean;
  if (name == "max") return Reduce::kMax;
  return name == "min" ? Reduce::kMin : Reduce::kSum;
}

// Spmm, SpmmWide or SpmmSelected.
template <typename Op>
Tensor dense_cuda(const Op& op) {
  const Shape shape = check(op);
  const c10::cuda::CUDAGuard guard(op.dense.device());
  DenseCall<Op> call(op, shape);
  constexpr bool kWide = std::is_same_v<Op, SpmmWide>;
  const auto dtype = kWide ? compute_type(op.dense) : op.dense.scalar_type();
  const Tensor result = unfilled(call.sizes, op.dense.options().dtype(dtype));
  if (call.is_empty()) return result.zero_();
  call.problem.wide_out = kWide;
  Tensor selected;
  if constexpr (requires { op.selected; }) {
    selected = op.selected.contiguous();
    check_memory(name_of<Op>(), {{"selected", selected}});
    call.problem.selected = data_of(selected);
  } else if constexpr (requires { op.reduce; }) {
    call.problem.reduce = to_reduce(op.reduce);
  }
  call.run(result);
  return result;
}

SpmmArg::Result arg_cuda(const SpmmArg& op) {
  const Shape shape = check(op);
  const c10::cuda::CUDAGuard guard(op.dense.device());
  DenseCall<SpmmArg> call(op, shape);
  const Tensor result = unfilled(call.sizes, op.dense.options());
  const Tensor arg = unfilled(call.sizes, op.ptr.options());
  if (call.is_empty()) return {result.zero_(), arg.fill_(-1)};
  call.problem.reduce = to_reduce(op.reduce);
  call.problem.arg = arg.mutable_data_ptr();
  call.run(result);
  return {result, arg};
}

Tensor sddmm_cuda(const Sddmm& op) {
  const Shape shape = check(op);
  const char* name = name_of<Sddmm>();
  check_memory(name, {{"a", op.a}, {"b", op.b}});
  const c10::cuda::CUDAGuard guard(op.a.device());
  const MatrixOperand s(op, shape);
  const RowsOperand a(op.a, 0), b(op.b, 0);
  ProductProblem problem;
  problem.matrix = s.matrix;
  problem.dtype = to_dtype(name, op.a.scalar_type());
  problem.features = a.tensor.size(2);
  problem.heads = op.heads ? op.a.size(1) : 1;
  problem.a = a.rows;
  problem.b = b.rows;
  at::DimVector sizes{problem.matrix.entries};
  if (op.heads) sizes.push_back(problem.heads);
  const Tensor result = unfilled(sizes, op.a.options());
  if (problem.matrix.entries == 0 || problem.features == 0) return result.zero_();
  problem.out = result.mutable_data_ptr();
  if (const auto map = as_map(problem)) {
    run(name, *map);
  } else {
    run(name, problem);
  }
  return result;
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<Spmm, dense_cuda<Spmm>>(m);
  impl<SpmmWide, dense_cuda<SpmmWide>>(m);
  impl<SpmmArg, arg_cuda>(m);
  impl<SpmmSelected, dense_cuda<SpmmSelected>>(m);
  impl<Sddmm, sddmm_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
