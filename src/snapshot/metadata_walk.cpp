#include "src/snapshot/metadata_walk.hpp"

#include <array>
#include <set>
#include <type_traits>

#include "src/snapshot/json_text.hpp"
#include "src/snapshot/metadata_checks.hpp"

namespace kvmserver {
namespace {

constexpr std::size_t kMaxLateNames = 64 << 10; // bytes of those that are kept

template <class T>
struct IsList : std::false_type {};
template <class T>
struct IsList<std::vector<T>> : std::true_type {};
template <>
struct IsList<std::vector<std::uint8_t>> : std::false_type {}; // saved as one hexadecimal string

// Runs of frames may come before the number of frames is known: keeps the run that reaches furthest and checks it at
// the end.
class FurthestRun {
public:
    using Check = void (*)(const tinykvm::FrameRun&, const JsonPath&, std::uint32_t);
    FurthestRun(const char* name, Check with) : name_(name), check_(with) {}
    void see(const tinykvm::FrameRun& run, const JsonPath& place) {
        check_(run, place, format::kMaxFrames);
        if (std::uint64_t{run.first} + run.count < std::uint64_t{run_.first} + run_.count)
            return;
        run_ = run;
        index_ = place.index;
        any_ = true;
    }
    void check(std::uint32_t frames) const {
        const JsonPath list{&kMachine, name_, 0};
        if (any_)
            check_(run_, JsonPath{&list, nullptr, index_}, frames);
    }

private:
    const char* name_;
    Check check_;
    tinykvm::FrameRun run_;
    std::size_t index_ = 0;
    bool any_ = false;
};

class MetadataWalk {
public:
    explicit MetadataWalk(JsonText& text) : text_(text) {}

    Metadata document() {
        Metadata metadata;
        std::set<std::string> seen;
        text_.object([&](const std::string& name) {
            seen.insert(name);
            if (name == "made_with")
                from_json_value(text_.value(), JsonPath{&kDocument, "made_with", 0}, metadata.made_with);
            else if (name == "machine")
                machine(metadata.machine);
            else if (name == "content_bytes")
                content_bytes();
            else
                kDocument.bad(fmt::format("has an unknown field \"{}\"", tinykvm::printable(name)));
        });
        for (const char* const name : {"content_bytes", "machine", "made_with"})
            if (!seen.contains(name))
                JsonPath{&kDocument, name, 0}.bad("is missing");
        check_numbers(metadata.machine);
        for (const FurthestRun* run : {&free_, &working_, &large_})
            run->check(metadata.machine.frames);
        metadata.machine.late_env = std::move(late_);
        metadata.machine.listeners = std::move(listeners_);
        if (contents_ != handles_)
            JsonPath{&kDocument, "content_bytes", 0}.bad("has not one number for each handle");
        return metadata;
    }
    std::uint64_t content_sum() const { return content_sum_; }

private:
    void machine(tinykvm::MachineState& state) {
        constexpr auto fields = Fields<tinykvm::MachineState>::all();
        std::set<std::string> seen;
        text_.object([&](const std::string& name) {
            const auto take = [&](const auto& field) {
                if (name != field.name)
                    return false;
                member(field.name, state.*field.member);
                return true;
            };
            if (!std::apply([&](const auto&... field) { return (take(field) || ...); }, fields))
                kMachine.bad(fmt::format("has an unknown field \"{}\"", tinykvm::printable(name)));
            seen.insert(name);
        });
        const auto need = [&](const auto& field) {
            if (!field.optional && !seen.contains(field.name))
                JsonPath{&kMachine, field.name, 0}.bad("is missing");
        };
        std::apply([&](const auto&... field) { (need(field), ...); }, fields);
    }

    template <class Member>
    void member(const char* name, Member& value) {
        const JsonPath place{&kMachine, name, 0};
        if constexpr (IsList<Member>::value)
            list<typename Member::value_type>(name, place);
        else
            from_json_value(text_.value(), place, value);
    }

    template <class T>
    void list(const std::string& name, const JsonPath& place) {
        const std::size_t count = text_.array(
            [&](std::size_t index) {
                const JsonPath here{&place, nullptr, index};
                T element;
                from_json_value(text_.value(), here, element);
                see(name, element, here);
            },
            [&] { place.bad("is not a list"); });
        if (name == "handles")
            handles_ = count;
        if (name == "large_pages")
            check_large_page_count(count);
    }

    void see(const std::string& name, const tinykvm::FrameRun& run, const JsonPath& place) {
        if (name == "free_frames")
            free_.see(run, place);
        else if (name == "working_set")
            working_.see(run, place);
    }
    void see(const std::string&, const tinykvm::RegionState& region, const JsonPath& place) {
        check_region(region, place);
    }
    void see(const std::string&, const tinykvm::ListenerState& each, const JsonPath& place) {
        check_listener(each, place);
        if (listeners_.size() < kWalkedListeners)
            listeners_.push_back(each);
    }
    void see(const std::string&, const tinykvm::LargePageState& page, const JsonPath& place) {
        large_.see(page.hot, place);
    }
    void see(const std::string&, const tinykvm::LateVariable& variable, const JsonPath&) {
        late_bytes_ += variable.name.size() + sizeof variable;
        if (late_bytes_ <= kMaxLateNames)
            late_.push_back({.name = variable.name, .bytes = variable.bytes});
    }
    template <class T>
    void see(const std::string&, const T&, const JsonPath&) {}

    void content_bytes() {
        const JsonPath place{&kDocument, "content_bytes", 0};
        contents_ = text_.array(
            [&](std::size_t index) {
                std::uint64_t bytes = 0;
                from_json_value(text_.value(), JsonPath{&place, nullptr, index}, bytes);
                if (bytes > format::kMaxContentBytes - content_sum_)
                    place.bad("is too much");
                content_sum_ += bytes;
            },
            [&] { place.bad("is not a list"); });
    }

    JsonText& text_;
    FurthestRun free_{"free_frames", check_run}, working_{"working_set", check_run};
    FurthestRun large_{"large_pages", check_hot_run};
    std::vector<tinykvm::ListenerState> listeners_;
    std::vector<tinykvm::LateVariable> late_; // without their places
    std::size_t handles_ = 0, contents_ = 0, late_bytes_ = 0;
    std::uint64_t content_sum_ = 0;
};

} // namespace

Metadata walk_metadata(SectionStream& section) {
    std::uint32_t json_bytes = 0;
    const std::uint64_t whole = section.left();
    section.fill(std::as_writable_bytes(std::span(&json_bytes, 1)));
    if (json_bytes > format::kMaxJsonBytes)
        throw FormatError("metadata is inconsistent: it is too long");
    std::array<std::byte, 16 << 10> block;
    std::uint64_t left = json_bytes;
    JsonText text([&]() -> std::string_view {
        const auto wanted = std::min<std::uint64_t>(block.size(), left);
        if (wanted == 0)
            return {};
        const std::size_t count = section.some(std::span(block).first(static_cast<std::size_t>(wanted)));
        if (count == 0)
            throw FormatError("metadata is inconsistent: it ends too early");
        left -= count;
        return {reinterpret_cast<const char*>(block.data()), count};
    });
    MetadataWalk walk(text);
    Metadata metadata = walk.document();
    text.expect_end();
    if (sizeof json_bytes + json_bytes + walk.content_sum() != whole)
        throw FormatError("metadata is inconsistent: its parts do not make up its length");
    return metadata;
}

} // namespace kvmserver
