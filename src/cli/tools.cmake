# The developer's commands: init, dev, help. Included by the CMakeLists.txt beside it.
target_sources(kvmserver_cli PRIVATE
  dev/dev.cpp dev/events.cpp dev/glob.cpp dev/process.cpp dev/server.cpp dev/watch.cpp
  doctor/advice.cpp doctor/facts.cpp
  help/help.cpp help/manual.cpp help/manual_command.cpp help/roff.cpp
  init/files.cpp init/guess.cpp init/guess_files.cpp init/guess_java.cpp init/guess_javascript.cpp
  init/guess_php_ruby.cpp init/guess_program.cpp init/guess_python.cpp init/init.cpp init/templates.cpp)

# templates/NAME/... of the source tree become part of the binary: nothing is looked for at run time. One by one, because
# whoever tries a template in its folder leaves more there.
set(template_folder ${CMAKE_SOURCE_DIR}/templates)
set(template_files
  bun/README.md bun/dot_gitignore bun/kvmserver.toml bun/package.json bun/server.ts
  c/README.md c/dot_gitignore c/kvmserver.toml c/server.c
  deno/README.md deno/deno.json deno/kvmserver.toml deno/server.ts
  django/README.md django/dot_gitignore django/kvmserver.toml django/manage.py django/requirements.txt
    django/website/__init__.py django/website/settings.py django/website/urls.py django/website/wsgi.py
  express/README.md express/dot_gitignore express/kvmserver.toml express/package.json express/server.js
  fastapi/README.md fastapi/dot_gitignore fastapi/kvmserver.toml fastapi/main.py fastapi/requirements.txt
  flask/README.md flask/app.py flask/dot_gitignore flask/kvmserver.toml flask/requirements.txt
  go/README.md go/dot_gitignore go/go.mod go/kvmserver.toml go/main.go
  java/README.md java/dot_gitignore java/kvmserver.toml java/pom.xml java/src/main/java/Main.java
  java-gradle/README.md java-gradle/build.gradle java-gradle/dot_gitignore java-gradle/kvmserver.toml
    java-gradle/settings.gradle java-gradle/src/main/java/Main.java
  next/README.md next/app/layout.js next/app/page.js next/dot_gitignore next/kvmserver.toml
    next/next.config.mjs next/package.json
  node/README.md node/dot_gitignore node/kvmserver.toml node/package.json node/server.js
  php/README.md php/dot_gitignore php/kvmserver.toml php/public/index.php
  python/README.md python/dot_gitignore python/kvmserver.toml python/server.py
  rack/Gemfile rack/README.md rack/config.ru rack/dot_gitignore rack/kvmserver.toml
  ruby/README.md ruby/kvmserver.toml ruby/server.rb
  rust/Cargo.toml rust/README.md rust/dot_gitignore rust/kvmserver.toml rust/src/main.rs)
set(TEMPLATE_ROWS "")
foreach(file IN LISTS template_files)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${template_folder}/${file})
  file(READ ${template_folder}/${file} text)
  string(APPEND TEMPLATE_ROWS "    {\"${file}\", R\"template(${text})template\"},\n")
endforeach()
configure_file(init/embedded.cpp.in init/embedded.cpp @ONLY)
target_sources(kvmserver_cli PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/init/embedded.cpp)

# What the binary says of itself, for packaging/. (Sanitizers may have their own opinion of how it ends.)
if(NOT KVMSERVER_SANITIZE)
  set(shared ${CMAKE_BINARY_DIR}/share)
  file(MAKE_DIRECTORY ${shared})
  add_custom_command(TARGET kvmserver POST_BUILD VERBATIM
    COMMAND sh -ec "rm -rf \"$2/man1\"; mkdir \"$2/man1\"; \"$1\" help --man -o \"$2/man1\"; gzip -9n \"$2\"/man1/*"
            sh $<TARGET_FILE:kvmserver> ${shared}
    COMMAND sh -ec "for shell in bash zsh fish; do \"$1\" completion $shell >\"$2/$shell\"; done"
            sh $<TARGET_FILE:kvmserver> ${shared})
endif()
