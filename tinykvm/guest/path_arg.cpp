#include "tinykvm/guest/path_arg.hpp"

namespace gk {
namespace {

// The host stores the canonical path here when it answers -kOwnPath.
[[gnu::section(".bss.large")]] char path_from_host[own::kMaxPath];

u64 length_of(const char* text) {
    u64 n = 0;
    while (text[n])
        ++n;
    return n;
}

// A cheap test by the first letters: whether an absolute path may lead to one of the machine's own folders or /proc.
bool may_be_own(u64 path) {
    char c = 0;
    u64 at = path;
    do {
        if (!get_user(c, at++))
            return false;
    } while ((c == '/' || c == '.') && at < path + 64); // a longer run of them is parsed in full
    char next = 0;
    if (c == 'p')
        return get_user(next, at) && next == 'r'; // /proc
    if (c == '/' || c == '.')
        return true;
    return (c == 't' || c == 'd') && get_user(next, at) && next == (c == 't' ? 'm' : 'e');
}

} // namespace

i64 PathArg::take(u64 dir, u64 path, bool follow, bool empty) {
    char first = 0;
    if (!path && empty)
        first = 0;
    else if (!user_ok(path, 0) || !get_user(first, path))
        return -EFAULT;
    path_ = path;
    File* const f = static_cast<i32>(dir) == static_cast<i32>(kAtCwd) ? nullptr : file_of(static_cast<i32>(dir));
    own::OwnFile* const own_file = own::own_file(f);
    if (first == 0 && empty) {
        own::Node* n = own_file                                            ? own_file->node
                       : static_cast<i32>(dir) == static_cast<i32>(kAtCwd) ? own::current_folder()
                                                                           : nullptr;
        if (n) {
            own_ = true;
            place_ = own::Place{};
            place_.node = n;
            return 0;
        }
    }
    if (first == '/') {
        if (!may_be_own(path))
            return 0;
        if (!text_.make())
            return -ENOMEM;
        if (const i64 n = string_from_user(text_.text(), path, own::kMaxPath); n < 0)
            return n;
        if (const i64 result = take_proc(follow); result <= 0)
            return result;
        const char* rest;
        own::Node* root = own::root_of(text_.text(), rest);
        return root ? walk_own(root, rest, follow) : 0;
    }
    if (static_cast<i32>(dir) != static_cast<i32>(kAtCwd) && !f)
        return -EBADF;
    own::Node* folder = f ? (own_file ? own_file->node : nullptr) : own::current_folder();
    if (!folder) {
        handle_ = f ? handle_of(f) : abi::kHandleCwd;
        return handle_ < 0 ? -ENOTDIR : 0;
    }
    if (first == 0)
        return -ENOENT;
    if (!folder->is_folder())
        return -ENOTDIR;
    if (!text_.make())
        return -ENOMEM;
    if (const i64 n = string_from_user(text_.text(), path, own::kMaxPath); n < 0)
        return n;
    return walk_own(folder, text_.text(), follow);
}

i64 PathArg::walk_own(own::Node* start, const char* rest, bool follow) {
    own_ = true;
    if (gk_shared_page.own_folders & abi::kOwnFoldersShowHost) {
        // Build the absolute path, for the host.
        if (!whole_text_.make())
            return -ENOMEM;
        char* whole = whole_text_.text();
        const i64 n = own::path_of(start, whole, own::kMaxPath);
        if (n > 0 && static_cast<u64>(n) + 1 + length_of(rest) < own::kMaxPath) {
            whole[n - 1] = '/';
            memcpy(whole + n, rest, length_of(rest) + 1);
            whole_ = true;
        }
    }
    char* text = text_.text();
    if (rest != text)
        for (u64 i = 0;; ++i)
            if ((text[i] = rest[i]) == 0)
                break;
    if (!own::walk(place_, start, text_, follow)) {
        own_ = false;
        handle_ = abi::kHandleCwd;
        path_ = address(text_.text());
    }
    return 0;
}

void PathArg::use_hosts() {
    handle_ = abi::kHandleCwd;
    path_ = address(whole_text_.text());
}

i64 PathArg::take_from_host(bool follow) {
    if (!text_.make())
        return -ENOMEM;
    char* text = text_.text();
    memcpy(text, path_from_host, own::kMaxPath);
    text[own::kMaxPath - 1] = 0;
    const char* rest;
    own::Node* root = own::root_of(text, rest);
    if (!root)
        return -ENOENT;
    if (const i64 error = walk_own(root, rest, follow); error < 0)
        return error;
    return own_ ? 0 : -ELOOP; // a path that alternates between host and guest kernel is not followed further
}

void init_paths() {
    gk_shared_page.own_path_at = address(path_from_host);
    if (!own::enabled())
        return;
    const i64 n = host_call(abi::kHandlePath, abi::kHandleCwd, address(path_from_host), own::kMaxPath - 1);
    const char* rest;
    path_from_host[n > 0 ? n : 0] = 0;
    if (own::Node* root = own::root_of(path_from_host, rest); root && *rest == 0)
        own::set_current_folder(root);
}

} // namespace gk
