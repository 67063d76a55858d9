// libFuzzer: every reader of tinykvm/elf on arbitrary bytes.
//
//   cmake -G Ninja -B build-fuzz -DCMAKE_CXX_COMPILER=clang++ -DKVMSERVER_FUZZ=ON \
//         -DKVMSERVER_SANITIZE=address,undefined,fuzzer-no-link
//   ninja -C build-fuzz elf_fuzz && mkdir -p corpus && cp /bin/true corpus/ &&
//   build-fuzz/tests/unit/elf/elf_fuzz corpus
#include "tests/unit/elf/exercise.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    elf_test::exercise({reinterpret_cast<const std::byte*>(data), size});
    return 0;
}
