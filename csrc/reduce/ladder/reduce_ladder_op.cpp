// gpuopt_ladder::reduce_sum and reduce_max: schemas and steps.
#include "binding/ladder.h"
#include "reduce/ladder/reduce_ladder.h"

namespace gpuopt::reduce {
namespace {

const RegisterLadder sum_steps(kLadder, "reduce_sum(Tensor self, int step) -> Tensor");
const RegisterLadder max_steps(kMaxLadder.steps, "reduce_max(Tensor self, int step) -> Tensor");

}  // namespace
}  // namespace gpuopt::reduce
