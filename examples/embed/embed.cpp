// Runs functions of a program that it does not trust: see README.md.
#include <tinykvm/tinykvm.hpp>

#include <array>
#include <cstdio>
#include <span>
#include <string>

namespace {

enum { kWeather = 1 }; // number of the function that tenants may call

std::int64_t weather(tinykvm::Machine& machine, std::span<const std::uint64_t, 5> arguments) {
    const std::string text = "sunny";
    if (arguments[1] <= text.size())
        return -1;
    machine.write(tinykvm::Address{arguments[0]}, std::span<const char>(text.c_str(), text.size() + 1));
    return 0;
}

template <class T>
void show(const char* what, const tinykvm::Result<T>& result) {
    if (result)
        std::printf("%s: %d\n", what, static_cast<int>(*result));
    else
        std::printf("%s: failed: %.60s\n", what, result.fault().message.c_str());
}

void run(const char* path) {
    const tinykvm::Image image = tinykvm::Image::boot(tinykvm::Program(path).set("max-request-time", "0.1"));
    const auto greet = image.function<std::size_t(std::string_view, tinykvm::Out<char>, std::size_t)>("greet");
    const auto divide = image.function<int(int, int)>("divide");
    const auto think = image.function<int()>("think");

    std::array<char, 100> text{};
    for (const auto kind : {tinykvm::Kind::keeps_state, tinykvm::Kind::ephemeral}) {
        tinykvm::Machine machine(image, kind);
        machine.on(kWeather, weather);
        for (const char* name : {"Ada", "Grace"})
            if (machine.call(greet, name, tinykvm::Out<char>{text}, text.size()))
                std::printf("%s\n", text.data());
    }

    tinykvm::Machine machine(image, tinykvm::Kind::ephemeral); // is clean after every call, and after every fault
    show("84 / 2", machine.call(divide, 84, 2));
    show("84 / 0", machine.call(divide, 84, 0));
    show("think", machine.call(think));
    show("84 / 4", machine.call(divide, 84, 4));
}

} // namespace

int main(int argc, char** argv) {
    try {
        run(argc > 1 ? argv[1] : "./tenant");
    } catch (const tinykvm::Error& error) {
        std::fprintf(stderr, "embed: %s\n", error.what());
        return 1;
    }
}
