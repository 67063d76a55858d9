// Pools of random bytes, told by the code that draws from them.
#include "src/unique/random_pools.hpp"
#include "tests/catch.hpp"

using namespace kvmserver::unique;

namespace {

using Pools = std::vector<PoolNames>;

TEST_CASE("the code of uuid and nanoid, as published and as minifiers leave it") {
    CHECK(pools_in_text("  if (poolPtr > rnds8Pool.length - 16) {\n    crypto.randomFillSync(rnds8Pool);\n\n    "
                        "poolPtr = 0;\n  }\n") == Pools{{"poolPtr", "rnds8Pool", 16}});
    CHECK(pools_in_text("function g(){return d>f.length-16&&((0,L.randomFillSync)(f),d=0),f.slice(d,d+=16)}") ==
          Pools{{"d", "f", 16}});
    CHECK(pools_in_text("  } else if (poolOffset + bytes > pool.length) {\n    webcrypto.getRandomValues(pool)\n    "
                        "poolOffset = 0\n  }\n") == Pools{{"poolOffset", "pool", 0}});
    CHECK(pools_in_text("!a||a.length<t?(a=Buffer.allocUnsafe(t*$),U.webcrypto.getRandomValues(a),u=0):u+t>a.length&&"
                        "(U.webcrypto.getRandomValues(a),u=0),u+=t") == Pools{{"u", "a", 0}});
    CHECK(pools_in_text("if($a.length-16<_b){x.randomFillSync($a);_b=0}") == Pools{{"_b", "$a", 16}});
    CHECK(pools_in_text("import{randomFillSync as N}from\"crypto\";var y=new Uint8Array(256),v=y.length;function "
                        "h(){return v>y.length-16&&(N(y),v=0),y.slice(v,v+=16)}") == Pools{{"v", "y", 16}});
    CHECK(pools_in_text("const{randomFillSync:N}=require(\"crypto\");function h(){return "
                        "v>y.length-16&&(N(y),v=0),y.slice(v,v+=16)}") == Pools{{"v", "y", 16}});
}

TEST_CASE("other code is no pool") {
    const char* text = GENERATE("const key = new Uint8Array(32); crypto.getRandomValues(key); n = 0;", // filled once
                                "if (p > b.length - 16) { flush(b); p = 0; }",                         // nothing random
                                "if (p > c.length - 16) { x.randomFillSync(b); p = 0; }", // another's length
                                "if (q > b.length - 16) { x.randomFillSync(b); p = 0; }", // another index
                                "if (p > b.length - 16) { x.randomFillSync(b); p = 0.5; }",
                                "if (p > b.length - 16) { x.randomFillSync(b.c); p = 0; }",
                                "if (p > b.lengths - 16) { x.randomFillSync(b); p = 0; }", "randomFillSync as ",
                                "p>b.length&&(randomFillSync(", "randomFillSync");
    CHECK(pools_in_text(text).empty());
}

TEST_CASE("text of two bytes a character") {
    alignas(4096) std::array<std::byte, 4096> page{};
    const std::string_view text = "d>f.length-16&&(L.randomFillSync(f),d=0)";
    for (std::size_t i = 0; i < text.size(); ++i)
        page[100 + 2 * i] = static_cast<std::byte>(text[i]);
    const tinykvm::GuestVirt at(0x10000);
    const MemoryView memory({{at, at + page.size(), 3, "", page}}, {{at, page}});
    CHECK(pools_in_scripts(memory) == Pools{{"d", "f", 16}});
}

} // namespace
