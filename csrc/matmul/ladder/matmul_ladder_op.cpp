// gpuopt_ladder::matmul: schema and steps.
#include "binding/ladder.h"
#include "matmul/ladder/matmul_ladder.h"

namespace gpuopt::matmul {
namespace {

const RegisterLadder steps(kLadder, "matmul(Tensor a, Tensor b, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::matmul
