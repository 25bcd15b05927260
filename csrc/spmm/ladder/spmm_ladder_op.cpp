// gpuopt_ladder::spmm: schema and steps.
#include "binding/ladder.h"
#include "spmm/ladder/spmm_ladder.h"

namespace gpuopt::spmm {
namespace {

const RegisterLadder steps(
    kLadder, "spmm(Tensor ptr, Tensor index, Tensor? value, Tensor dense, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::spmm
