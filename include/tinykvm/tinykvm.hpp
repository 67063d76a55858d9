// tinykvm: programs in tiny KVM machines, whose functions the host calls. C++20 over the C interface of tinykvm.h,
// which explains the words, threads and lifetimes; only headers.
//
//     tinykvm::Program program("./tenant");
//     program.set("allow-read", "/usr/share/zoneinfo");
//     const tinykvm::Image image = tinykvm::Image::boot(program);
//     const auto add = image.function<int(int, int)>("add");
//     tinykvm::Machine machine(image);
//     const tinykvm::Result<int> sum = machine.call(add, 40, 2);
//     if (sum) use(*sum); else complain(sum.fault().message);
//     machine.reset();
//
// Failures of the host and misuse throw tinykvm::Error. What a program does is a value: Result and Fault.
#ifndef TINYKVM_HPP
#define TINYKVM_HPP
#include <tinykvm/tinykvm.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace tinykvm {
inline namespace v0 {

// what() is one line. code() is a tinykvm_error_code.
class Error : public std::runtime_error {
public:
    explicit Error(const tinykvm_error& error) : std::runtime_error(error.message), code_(error.code) {}
    int code() const { return code_; }

private:
    int code_;
};

// An address in a machine, where its pointers lead.
struct Address {
    std::uint64_t value = 0;
    bool operator==(const Address&) const = default;
};

// For a parameter that the function only writes to: zeroed memory in the machine, copied here when it has returned.
template <class T>
struct Out {
    std::span<T> to;
};

struct Fault {
    tinykvm_outcome_kind kind;
    int number;          // signal or exit status
    Address address;     // that the program could not access
    std::string message; // one line
};

// What a call returned, or why it did not return.
template <class T>
class Result {
public:
    using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
    Result(Value value, std::uint64_t exits) : value_(std::move(value)), exits_(exits) {}
    Result(Fault fault, std::uint64_t exits) : fault_(std::move(fault)), exits_(exits) {}
    explicit operator bool() const { return value_.has_value(); }
    // Both throw std::runtime_error with the fault's message if there is none.
    const Value& value() const {
        if (!value_)
            throw std::runtime_error(fault_->message);
        return *value_;
    }
    const Value& operator*() const { return value(); }
    const Fault& fault() const { return fault_.value(); } // only if there is no value
    std::uint64_t exits() const { return exits_; }        // how often the machine was left

private:
    std::optional<Value> value_;
    std::optional<Fault> fault_;
    std::uint64_t exits_;
};

namespace detail {

template <class Work>
auto checked(Work&& work) {
    tinykvm_error error{};
    const auto result = work(&error);
    if constexpr (std::is_pointer_v<std::remove_const_t<decltype(result)>>) {
        if (!result)
            throw Error(error);
    } else {
        if (result == -1)
            throw Error(error);
    }
    return result;
}

template <class T>
T implicitly(T value) {
    return value;
}

template <class T>
inline constexpr bool is_out = false;
template <class T>
inline constexpr bool is_out<Out<T>> = true;
template <class T>
inline constexpr bool is_span = false;
template <class T>
inline constexpr bool is_span<std::span<T>> = true;

// Keeps what an argument of the C interface points to.
template <class P>
struct Argument {
    explicit Argument(const P& given) {
        if constexpr (std::is_enum_v<P>) {
            c.integer = static_cast<std::uint64_t>(static_cast<std::underlying_type_t<P>>(given));
        } else if constexpr (std::is_integral_v<P>) {
            c.integer = static_cast<std::uint64_t>(given); // sign-extended
        } else if constexpr (std::is_same_v<P, Address>) {
            c.integer = given.value;
        } else if constexpr (std::is_same_v<P, double> || std::is_same_v<P, float>) {
            c.kind = std::is_same_v<P, float> ? TINYKVM_FLOAT : TINYKVM_DOUBLE;
            c.real = given;
        } else if constexpr (is_out<P>) {
            point_to(TINYKVM_OUT, given.to);
        } else {
            static_assert(is_span<P>, "integers, enumerations, reals, Address, std::string_view, std::span and Out");
            point_to(std::is_const_v<typename P::element_type> ? TINYKVM_IN : TINYKVM_IN_OUT, given);
        }
    }
    tinykvm_argument c{};

private:
    template <class T>
    void point_to(tinykvm_argument_kind kind, std::span<T> bytes) {
        static_assert(std::is_trivially_copyable_v<T>, "it is copied byte by byte");
        c.kind = kind;
        c.data = const_cast<std::remove_const_t<T>*>(bytes.data());
        c.bytes = bytes.size_bytes();
    }
};
template <>
struct Argument<std::string_view> {
    explicit Argument(std::string_view given) : text(given) {
        c.kind = TINYKVM_STRING;
        c.data = text.data();
    }
    Argument(const Argument&) = delete;
    Argument& operator=(const Argument&) = delete;
    std::string text;
    tinykvm_argument c{};
};

template <class R>
auto returned(const tinykvm_outcome& outcome) {
    if constexpr (std::is_void_v<R>)
        return std::monostate();
    else if constexpr (std::is_same_v<R, double>)
        return outcome.real;
    else if constexpr (std::is_same_v<R, float>)
        return outcome.real_float;
    else if constexpr (std::is_same_v<R, Address>)
        return Address{outcome.integer};
    else if constexpr (std::is_same_v<R, bool>)
        return (outcome.integer & 0xff) != 0; // the other bits are undefined (System V ABI, 3.2.3)
    else {
        static_assert(std::is_integral_v<R> || std::is_enum_v<R>, "void, integers, enumerations, reals and Address");
        return static_cast<R>(outcome.integer);
    }
}

} // namespace detail

// A function of a program, as C sees it. A std::string_view becomes a const char*, a std::span<const T> a const T*, a
// std::span<T> and an Out<T> a T*; pass sizes as arguments of their own.
template <class Signature>
class Function;
template <class R, class... P>
class Function<R(P...)> {
public:
    explicit Function(Address at) : at_(at) {}
    Address address() const { return at_; }

private:
    Address at_;
};

class Program {
public:
    // A path, or a name that is looked up in PATH.
    explicit Program(const std::string& path)
        : own_(detail::checked([&](tinykvm_error* error) { return tinykvm_program_new(path.c_str(), error); }),
               tinykvm_program_free) {}

    Program& argument(const std::string& text) {
        detail::checked([&](auto* error) { return tinykvm_program_argument(own_.get(), text.c_str(), error); });
        return *this;
    }
    // The options are listed with tinykvm_program_set().
    Program& set(const std::string& option, const std::string& value) {
        detail::checked(
            [&](auto* error) { return tinykvm_program_set(own_.get(), option.c_str(), value.c_str(), error); });
        return *this;
    }
    // Kept for as long as there are images of the program. They must not throw.
    using Output = std::function<void(int stream, std::string_view bytes)>;
    using Log = std::function<void(std::string_view line)>;
    Program& output(Output output) {
        listeners_->output = std::move(output);
        tinykvm_program_output(
            own_.get(),
            [](void* user, int stream, const char* bytes, std::size_t count) {
                static_cast<Listeners*>(user)->output(stream, {bytes, count});
            },
            listeners_.get());
        return *this;
    }
    Program& log(Log log) {
        listeners_->log = std::move(log);
        tinykvm_program_log(
            own_.get(), [](void* user, const char* line) { static_cast<Listeners*>(user)->log(line); },
            listeners_.get());
        return *this;
    }

private:
    friend class Image;
    struct Listeners {
        Output output;
        Log log;
    };
    std::shared_ptr<Listeners> listeners_ = std::make_shared<Listeners>();
    std::unique_ptr<tinykvm_program, void (*)(tinykvm_program*)> own_;
};

class Machine;

// Copies are the same image.
class Image {
public:
    static Image boot(const Program& program) {
        return Image(detail::checked([&](auto* error) { return tinykvm_boot(program.own_.get(), error); }),
                     program.listeners_);
    }
    static Image restore(const std::string& file) {
        return Image(detail::checked([&](auto* error) { return tinykvm_restore(file.c_str(), nullptr, error); }), {});
    }
    static Image restore(const std::string& file, const Program& options) {
        return Image(
            detail::checked([&](auto* error) { return tinykvm_restore(file.c_str(), options.own_.get(), error); }),
            options.listeners_);
    }
    // Saves it as a file. `rehearse` calls what calls will typically be (tinykvm_save()); if it throws, nothing is
    // saved.
    void save(const std::string& file, const std::function<void(Machine&)>& rehearse = {}) const;

    Address symbol(const std::string& name) const {
        tinykvm_error error{};
        const std::uint64_t at = tinykvm_symbol(own_.get(), name.c_str(), &error);
        if (at == 0)
            throw Error(error);
        return {at};
    }
    template <class Signature>
    Function<Signature> function(const std::string& name) const {
        return Function<Signature>(symbol(name));
    }

private:
    friend class Machine;
    Image(tinykvm_image* own, std::shared_ptr<void> listeners)
        : listeners_(std::move(listeners)), own_(own, tinykvm_image_free) {}
    std::shared_ptr<void> listeners_;
    std::shared_ptr<tinykvm_image> own_;
};

enum class Kind {
    keeps_state, // until reset()
    ephemeral    // is reset after every call: read nothing of its memory then
};

// Belongs to one thread at a time, but for stop().
class Machine {
public:
    explicit Machine(const Image& image, Kind kind = Kind::keeps_state)
        : state_(std::make_unique<State>()), image_(image),
          own_(detail::checked([&](auto* error) {
                   return tinykvm_machine_new(image.own_.get(),
                                              kind == Kind::ephemeral ? unsigned{TINYKVM_EPHEMERAL} : 0u, error);
               }),
               tinykvm_machine_free) {}

    // What the program gets for tinykvm_call_host(number, ...). An exception ends the call, and call() throws it.
    using HostFunction = std::function<std::int64_t(Machine&, std::span<const std::uint64_t, 5> arguments)>;
    void on(unsigned number, HostFunction function) {
        Entry& entry = state_->functions[number];
        entry = {state_.get(), std::move(function)};
        detail::checked([&](auto* error) {
            return tinykvm_host_call(own_.get(), number, entry.function ? &call_entry : nullptr, &entry, error);
        });
    }

    // Calls a function of the program. Without a time of its own the limit is max-request-time.
    template <class R, class... P, class... A>
    Result<R> call(const Function<R(P...)>& function, A&&... arguments) {
        return call_for(std::chrono::duration<double>(0), function, std::forward<A>(arguments)...);
    }
    template <class R, class... P, class... A>
    Result<R> call_for(std::chrono::duration<double> limit, const Function<R(P...)>& function, A&&... arguments) {
        static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the function has parameters");
        std::tuple<detail::Argument<P>...> kept(detail::implicitly<P>(std::forward<A>(arguments))...);
        const auto c =
            std::apply([](const auto&... each) { return std::array<tinykvm_argument, sizeof...(P)>{each.c...}; }, kept);
        tinykvm_outcome outcome{};
        state_->machine = this;
        detail::checked([&](auto* error) {
            return tinykvm_call(own_.get(), function.address().value, c.data(), c.size(), limit.count(), &outcome,
                                error);
        });
        if (state_->thrown)
            std::rethrow_exception(std::exchange(state_->thrown, nullptr));
        if (outcome.kind == TINYKVM_RETURNED)
            return {detail::returned<R>(outcome), outcome.exits};
        return {
            Fault{static_cast<tinykvm_outcome_kind>(outcome.kind), outcome.number, {outcome.address}, outcome.message},
            outcome.exits};
    }
    // Ends the call that is under way, or else the next one. Any thread may call this.
    void stop() { tinykvm_stop(own_.get()); }
    void reset() {
        detail::checked([&](auto* error) { return tinykvm_reset(own_.get(), error); });
    }

    // Memory of the program, with its own rights there.
    template <class T>
    T read(Address from) {
        T value;
        read(from, std::span(&value, 1));
        return value;
    }
    template <class T>
    void read(Address from, std::span<T> to) {
        static_assert(std::is_trivially_copyable_v<T>);
        detail::checked(
            [&](auto* error) { return tinykvm_read(own_.get(), from.value, to.data(), to.size_bytes(), error); });
    }
    template <class T>
    void write(Address to, std::span<const T> from) {
        static_assert(std::is_trivially_copyable_v<T>);
        detail::checked(
            [&](auto* error) { return tinykvm_write(own_.get(), to.value, from.data(), from.size_bytes(), error); });
    }
    template <class T>
    void write(Address to, const T& value) {
        write(to, std::span<const T>(&value, 1));
    }
    // A string of at most `longest` bytes.
    std::string read_string(Address from, std::size_t longest = 4096) {
        std::string text(longest + 1, '\0');
        const auto bytes = detail::checked(
            [&](auto* error) { return tinykvm_read_string(own_.get(), from.value, text.data(), text.size(), error); });
        text.resize(static_cast<std::size_t>(bytes));
        return text;
    }

private:
    friend class Image;
    struct State;
    struct Entry {
        State* state = nullptr;
        HostFunction function;
    };
    struct State {
        std::map<unsigned, Entry> functions; // their places stay
        Machine* machine = nullptr;          // that is called
        std::exception_ptr thrown;           // by a function of the host
    };
    // One that belongs to the library, for a rehearsal.
    Machine(const Image& image, tinykvm_machine* borrowed)
        : state_(std::make_unique<State>()), image_(image), own_(borrowed, [](tinykvm_machine*) {}) {}

    static std::int64_t call_entry(void* user, tinykvm_machine* machine, const std::uint64_t* arguments) {
        const Entry& entry = *static_cast<Entry*>(user);
        try {
            return entry.function(*entry.state->machine, std::span<const std::uint64_t, 5>(arguments, 5));
        } catch (...) {
            entry.state->thrown = std::current_exception();
            tinykvm_stop(machine);
            return 0;
        }
    }

    std::unique_ptr<State> state_;
    Image image_;
    std::unique_ptr<tinykvm_machine, void (*)(tinykvm_machine*)> own_;
};

inline void Image::save(const std::string& file, const std::function<void(Machine&)>& rehearse) const {
    struct Rehearsal {
        const Image& image;
        const std::function<void(Machine&)>& work;
        std::exception_ptr thrown;
    } rehearsal{*this, rehearse, nullptr};
    const auto run = [](void* user, tinykvm_machine* borrowed) {
        auto& mine = *static_cast<Rehearsal*>(user);
        try {
            Machine machine(mine.image, borrowed);
            mine.work(machine);
            return 0;
        } catch (...) {
            mine.thrown = std::current_exception();
            return -1;
        }
    };
    tinykvm_error error{};
    const int saved = tinykvm_save(own_.get(), file.c_str(), rehearse ? +run : nullptr, &rehearsal, &error);
    if (rehearsal.thrown)
        std::rethrow_exception(rehearsal.thrown);
    if (saved != 0)
        throw Error(error);
}

} // namespace v0
} // namespace tinykvm
#endif
