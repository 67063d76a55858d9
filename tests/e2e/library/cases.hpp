// What the cases share: programs of tests/e2e/guests, beside this program.
#pragma once
#include <string>

#include <tinykvm/tinykvm.hpp>

#include "tests/catch.hpp"

namespace cases {

std::string folder(); // of the guests
inline std::string callee() { return folder() + "/callee"; }
// How many times slower than usual the host is: E2E_SLOWNESS.
double slowness();
// A program with limits that fit.
tinykvm::Program program(const std::string& path, const std::string& argument = "");
const tinykvm::Image& image(); // of the callee, booted once

// What() of the tinykvm::Error that `work` throws; fails the test if it throws none, or one of another code.
template <class Work>
std::string error_of(int code, Work&& work) {
    try {
        work();
    } catch (const tinykvm::Error& error) {
        CHECK(error.code() == code);
        return error.what();
    }
    FAIL("no error");
    return "";
}

inline bool has(const std::string& text, const std::string& part) {
    INFO(text);
    return text.find(part) != std::string::npos;
}

} // namespace cases
