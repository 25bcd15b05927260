// C entry points to the emulated launchers of spmm, for test_spmm_kernels.py.
#include "../poisoned_workspace.h"
#include "graph_attention/graph_attention.h"
#include "rows/rows.h"
#include "spmm/spmm.h"
#include "spmm/spmm_bags.h"
#include "spmm/spmm_transpose.h"

namespace gpuopt::index_sort {
alignas(16) uint64_t sort_shared[sort_shared_bytes(kMaxSortItems) / sizeof(uint64_t) + 8];
}  // namespace gpuopt::index_sort

using namespace gpuopt;
using namespace gpuopt::spmm;
using namespace gpuopt::graph_attention;

namespace {

constexpr Device kDevice{4, 227 << 10};

// Numbers in the order in which test_spmm_kernels.py writes them.
struct Fields {
  const int64_t* next;

  int64_t number() { return *next++; }
  void* pointer() { return reinterpret_cast<void*>(number()); }
  Rows rows() {
    Rows rows;
    rows.data = pointer();
    rows.row = number();
    rows.batch = number();
    return rows;
  }
  Matrix matrix() {
    Matrix matrix;
    matrix.ptr = pointer();
    matrix.index = pointer();
    matrix.entry = pointer();
    matrix.is_long = number() != 0;
    matrix.rows = number();
    matrix.columns = number();
    matrix.entries = number();
    return matrix;
  }
  AttentionProblem attention(double factor) {
    AttentionProblem problem;
    problem.matrix = matrix();
    problem.dtype = static_cast<DType>(number());
    problem.heads = number();
    problem.features = number();
    problem.key_features = number();
    problem.factor = factor;
    problem.left = rows();
    problem.right = rows();
    problem.value = rows();
    problem.bias = pointer();
    problem.out = rows();
    problem.log_sum = pointer();
    problem.grad = rows();
    problem.left_grad = rows();
    problem.weight = pointer();
    problem.score_grad = pointer();
    return problem;
  }
  // Windows of at least this length, or 0 for reductions in one launch.
  Tuning tuning() {
    Tuning tuning;
    tuning.shortest = number();
    tuning.few_units = tuning.shortest == 0 ? INT64_MAX : 0;
    tuning.tiles.least_tile = 16 * tuning.shortest;
    return tuning;
  }
};

}  // namespace

extern "C" int spmm_reduce(const int64_t* fields, double empty) {
  Fields in{fields};
  ReduceProblem problem;
  problem.matrix = in.matrix();
  problem.reduce = static_cast<Reduce>(in.number());
  problem.dtype = static_cast<DType>(in.number());
  problem.batches = in.number();
  problem.features = in.number();
  problem.value = in.pointer();
  problem.heads = in.number();
  problem.dense = in.rows();
  problem.out = in.rows();
  problem.arg = in.pointer();
  problem.selected = in.pointer();
  problem.empty = empty;
  const ReducePlan planned = plan(problem, in.tuning());
  PoisonedWorkspace workspace(0x7e);
  const bool ran = launch(planned, workspace, nullptr) == cudaSuccess && workspace.intact();
  return !ran             ? -1
         : planned.is_few ? 16 + static_cast<int>(planned.access)
                          : static_cast<int>(planned.access);
}

extern "C" int spmm_product(const int64_t* fields) {
  Fields in{fields};
  ProductProblem problem;
  problem.matrix = in.matrix();
  problem.dtype = static_cast<DType>(in.number());
  problem.features = in.number();
  problem.heads = in.number();
  problem.a = in.rows();
  problem.b = in.rows();
  problem.out = in.pointer();
  const ProductPlan planned = plan(problem, in.tuning());
  PoisonedWorkspace workspace(0x7e);
  const bool ran = launch(planned, workspace, nullptr) == cudaSuccess && workspace.intact();
  return ran ? static_cast<int>(planned.access) : -1;
}

extern "C" int spmm_map(const int64_t* fields) {
  Fields in{fields};
  MapProblem problem;
  problem.matrix = in.matrix();
  problem.map = static_cast<Map>(in.number());
  problem.dtype = static_cast<DType>(in.number());
  problem.features = in.number();
  problem.x = in.pointer();
  problem.y = in.pointer();
  problem.row = in.rows();
  problem.selected = in.pointer();
  problem.out = in.pointer();
  const MapPlan planned = plan(problem, in.tuning());
  PoisonedWorkspace workspace(0x7e);
  const bool ran = launch(planned, workspace, nullptr) == cudaSuccess && workspace.intact();
  return ran ? static_cast<int>(planned.access) : -1;
}

extern "C" int spmm_attention(const int64_t* fields, double factor) {
  Fields in{fields};
  const AttentionProblem problem = in.attention(factor);
  PoisonedWorkspace workspace(0x7e);
  const cudaError_t error = launch(plan(problem, in.tuning()), workspace, nullptr);
  return error == cudaSuccess && workspace.intact() ? 0 : -1;
}

extern "C" int spmm_attention_gradient(const int64_t* fields, double factor) {
  Fields in{fields};
  const AttentionProblem problem = in.attention(factor);
  PoisonedWorkspace workspace(0x7e);
  const cudaError_t error = launch(plan_gradient(problem, in.tuning()), workspace, nullptr);
  return error == cudaSuccess && workspace.intact() ? 0 : -1;
}

extern "C" int spmm_bags(const int64_t* fields) {
  Fields in{fields};
  BagProblem problem;
  problem.bag = static_cast<Bag>(in.number());
  problem.dtype = static_cast<DType>(in.number());
  problem.is_long = in.number() != 0;
  problem.bags = in.number();
  problem.entries = in.number();
  problem.table_rows = in.number();
  problem.features = in.number();
  problem.padding = in.number();
  problem.offset = in.pointer();
  problem.index = in.pointer();
  problem.value = in.pointer();
  problem.table = in.rows();
  problem.out = in.pointer();
  problem.bag_of = in.pointer();
  problem.size = in.pointer();
  problem.winner = in.pointer();
  const BagPlan planned = plan(problem, kDevice);
  if (launch(planned, nullptr) != cudaSuccess) return -1;
  return static_cast<int>(planned.args.team) + (planned.access == Access::kVector ? 0 : 64);
}

// Makes a transpose, or with `state` makes it again if the matrix has changed.
extern "C" int spmm_transpose(const int64_t* fields) {
  Fields in{fields};
  TransposeProblem problem;
  problem.matrix = in.matrix();
  problem.ptr = in.pointer();
  problem.index = in.pointer();
  problem.entry = in.pointer();
  auto* const state = static_cast<Fingerprint*>(in.pointer());
  auto* const changes = static_cast<int64_t*>(in.pointer());
  if (!is_supported(problem)) return 1;
  PoisonedWorkspace workspace(0x7e);
  const cudaError_t error = state == nullptr
                                ? launch(plan(problem, kDevice), workspace, nullptr)
                                : launch(plan_kept(problem, state, changes, kDevice), nullptr);
  return error == cudaSuccess && workspace.intact() ? 0 : 2;
}

extern "C" int fingerprint(const int64_t* fields) {
  Fields in{fields};
  Numbers numbers;
  numbers.first = in.pointer();
  numbers.first_count = in.number();
  numbers.is_long = in.number() != 0;
  auto* const state = static_cast<Fingerprint*>(in.pointer());
  const FingerprintPlan plan = plan_fingerprint(numbers, state, false, kDevice);
  return launch(plan, nullptr) == cudaSuccess ? 0 : 1;
}
