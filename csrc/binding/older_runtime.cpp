// Symbols that code from a newer g++ refers to and that older systems lack. With these definitions
// one library runs on every Linux that torch's own wheels support.
#include <new>
#include <sstream>
#include <string>

// libstdc++ defines these two from g++ 11 on (GLIBCXX_3.4.29).
[[noreturn]] __attribute__((visibility("hidden"))) void throw_bad_array_new_length() __asm__(
    "_ZSt28__throw_bad_array_new_lengthv");
void throw_bad_array_new_length() { throw std::bad_array_new_length(); }
template std::string std::stringbuf::str() const&;

// glibc defines it from 2.32 on. If it is true, shared pointers count without atomic instructions.
// The value false is always correct.
extern "C" {
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
}
