// Rules for names, routes and values. Each check throws BadValue with a message that states the rule.
#pragma once
#include <compare>
#include <string>
#include <string_view>

namespace kvmserver::store {

// A DNS label: 1 to 63 of a-z, 0-9 and -, neither beginning nor ending with -.
void check_function_name(std::string_view name);
bool is_function_name(std::string_view name);
// [A-Za-z_][A-Za-z0-9_]*, up to 128 characters.
void check_variable_name(std::string_view name);
// A value that an environment can hold: UTF-8 without NUL, up to 128 KiB.
void check_variable_value(std::string_view name, std::string_view value);
// A JSON object of up to 1 MiB.
void check_manifest(std::string_view json);

// Matches requests for a host ("" for any host, "*.x" for all hosts below x) whose path begins with a prefix.
struct Route {
    std::string host; // lower case
    std::string path; // begins with /
    auto operator<=>(const Route&) const = default;
    // "hello.example.com", "/hello/*", "example.com/api/*": the syntax of a manifest.
    static Route parse(std::string_view text);
    std::string text() const; // in the syntax of parse()
    void check() const;
};

} // namespace kvmserver::store
