// libFuzzer: every reader of tinykvm/elf on arbitrary bytes.
#include "tests/unit/elf/exercise.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    elf_test::exercise({reinterpret_cast<const std::byte*>(data), size});
    return 0;
}
