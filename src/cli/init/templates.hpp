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
    // Values of its own program, as in Values.
    std::string_view entry;
    std::string_view program = {};
    std::string_view option = {}; // one
    std::string_view build = {};
};
std::span<const Template> templates();
// Why there is none for it.
extern const char* const kNoDotnet;
// Throws UserError (usage) that suggests the nearest name.
const Template& find_template(const std::string& name);

struct File {
    std::string path, text; // relative to the function's folder
};
std::string template_names(); // "c|rust|go"

// What a manifest has in place of {{entry}}, {{program}}, {{options}}, {{build}}; an empty one is the template's own.
struct Values {
    std::string entry;                     // the file, module or binary that is started
    std::string program = {};              // that starts it
    std::vector<std::string> options = {}; // arguments before it
    std::string build = {};                // command; a manifest that has no {{build}} gets a [function.build]
};

// All files of a template, the manifest last. `name` is the function's.
std::vector<File> files_of(const Template& chosen, const std::string& name);
// Only the manifest, for an existing program.
File manifest_of(const Template& chosen, const std::string& name, const Values& values);

} // namespace kvmserver::cli::init
