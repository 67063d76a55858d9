// The templates of `kvmserver init`: the folders of templates/, embedded in the binary.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::cli::init {

struct EmbeddedFile {
    std::string_view path; // "node/server.js"
    std::string_view text;
};
std::span<const EmbeddedFile> embedded_files(); // sorted by path

struct Template {
    std::string_view name, summary;
    std::string_view entry; // value of {{entry}} if the template's own program is used
};
std::span<const Template> templates();
// Throws UserError (usage) that suggests the nearest name.
const Template& find_template(const std::string& name);

struct File {
    std::string path, text; // relative to the function's folder
};
// All files of a template, the manifest last. `name` is the function's.
std::vector<File> files_of(const Template& chosen, const std::string& name);
// Only the manifest, for an existing program.
File manifest_of(const Template& chosen, const std::string& name, const std::string& entry);

} // namespace kvmserver::cli::init
