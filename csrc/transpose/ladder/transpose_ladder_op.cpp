// gpuopt_ladder::transpose2d: schema and steps.
#include "binding/ladder.h"
#include "transpose/ladder/transpose_ladder.h"

namespace gpuopt::transpose {
namespace {

const RegisterLadder steps(kLadder, "transpose2d(Tensor self, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::transpose
