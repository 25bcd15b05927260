// Symbols that code compiled by newer g++ refers to and older systems lack. Defined here, they let
// one library serve every Linux that torch's own wheels serve.
#include <new>
#include <sstream>
#include <string>

// libstdc++ has these two from g++ 11 on (GLIBCXX_3.4.29).
[[noreturn]] __attribute__((visibility("hidden"))) void throw_bad_array_new_length() __asm__(
    "_ZSt28__throw_bad_array_new_lengthv");
void throw_bad_array_new_length() { throw std::bad_array_new_length(); }
template std::string std::stringbuf::str() const&;

// glibc has it from 2.32 on. Shared pointers count without atomic instructions where it is true;
// false is always right.
extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
