// gpuopt_ladder::index_add_: schema and steps.
#include "binding/ladder.h"
#include "index_add/ladder/index_add_ladder.h"

namespace gpuopt::index_add {
namespace {

const RegisterLadder steps(
    kLadder, "index_add_(Tensor(a!) self, Tensor index, Tensor source, int step) -> Tensor(a!)");

}  // namespace
}  // namespace gpuopt::index_add
