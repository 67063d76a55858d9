// Java projects: which jar or classes their build makes.
#include <fmt/format.h>

#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <sstream>

#include "src/cli/init/guess_files.hpp"
#include "src/cli/init/guess_languages.hpp"

namespace kvmserver::cli::init {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPom = "pom.xml";

bool has(const std::string& text, std::string_view word) { return text.find(word) != text.npos; }

void replace_all(std::string& text, std::string_view from, const std::string& to) {
    for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
        text.replace(at, from.size(), to);
}

// The jar that `mvn package` makes.
std::string maven_jar(const std::string& text) {
    boost::property_tree::ptree pom;
    try {
        std::istringstream stream(text);
        boost::property_tree::read_xml(stream, pom, boost::property_tree::xml_parser::trim_whitespace);
    } catch (const boost::property_tree::xml_parser_error& error) {
        no_entry(kPom, "it is no XML: " + error.message());
    }
    const auto value = [&](const char* path) { return pom.get<std::string>(path, ""); };
    if (const std::string packaging = value("project.packaging"); !packaging.empty() && packaging != "jar")
        no_entry(kPom, fmt::format("its packaging is {}, not jar", packaging));
    if (has(text, "quarkus-maven-plugin"))
        return "target/quarkus-app/quarkus-run.jar";
    if (!has(text, "spring-boot-maven-plugin") && !has(text, "mainClass") && !has(text, "Main-Class"))
        no_entry(kPom, "nothing in it makes the jar one that starts (mainClass of maven-jar-plugin)");
    std::string version = value("project.version"), name = value("project.build.finalName");
    if (version.empty())
        version = value("project.parent.version");
    if (name.empty())
        name = "${project.artifactId}-${project.version}";
    if (has(text, "<descriptorRef>jar-with-dependencies<"))
        name += "-jar-with-dependencies";
    replace_all(name, "${project.artifactId}", value("project.artifactId"));
    replace_all(name, "${project.version}", version);
    if (has(name, "${"))
        no_entry(kPom, fmt::format("the name of its jar depends on properties ({})", name));
    return fmt::format("target/{}.jar", name);
}

Guess maven(const fs::path& folder) {
    const char* command = has_file(folder, "mvnw") ? "./mvnw" : "mvn";
    return {
        "java",
        kPom,
        {.entry = maven_jar(text_of(folder / kPom)), .build = fmt::format("{} -q -B -DskipTests package", command)}};
}

// `project` is "", or the folder of the only subproject, as "app/".
Guess gradle(const fs::path& folder, const std::string& project, const std::string& file) {
    const std::string text = text_of(folder / file);
    const std::string settings = text_of(folder / first_of(folder, {"settings.gradle", "settings.gradle.kts"}));
    std::string name = found_in(settings, R"(rootProject\.name\s*=\s*["']([^"']+))");
    if (!project.empty())
        name = project.substr(0, project.size() - 1);
    if (name.empty())
        name = folder.filename().string();
    const std::string version = found_in(text, R"(^\s*version\s*=?\s*["']([^"']+))");
    const std::string jar = fmt::format("{}build/libs/{}{}{}.jar", project, name, version.empty() ? "" : "-", version);
    const std::string command = has_file(folder, "gradlew") ? "./gradlew -q " : "gradle -q ";
    if (has(text, "org.springframework.boot"))
        return {"java-gradle", file, {.entry = jar, .build = command + "bootJar"}};
    if (const std::string main = found_in(text, R"(mainClass(?:Name)?\s*(?:=|\.set\()\s*["']([\w.$]+))"); !main.empty())
        return {"java-gradle",
                file,
                {.entry = main,
                 .options = {"-cp", fmt::format("{}build/install/{}/lib/*", project, name)},
                 .build = command + "installDist"}};
    if (!has(text, "Main-Class"))
        no_entry(file, "it names no mainClass");
    return {"java-gradle", file, {.entry = jar, .build = command + "assemble"}};
}

} // namespace

std::optional<Guess> guess_java(const fs::path& folder) {
    if (has_file(folder, kPom))
        return maven(folder);
    for (const char* project : {"", "app/"})
        for (const char* name : {"build.gradle", "build.gradle.kts"})
            if (const std::string file = std::string(project) + name; has_file(folder, file))
                return gradle(folder, project, file);
    return std::nullopt;
}

} // namespace kvmserver::cli::init
