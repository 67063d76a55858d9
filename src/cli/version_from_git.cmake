# Run at build time: writes FOLDER/version_values.hpp and FOLDER/version.cmake if what they say has changed.
#   cmake -D SOURCE=... -D FOLDER=... -D NUMBER=0.1.0 -D COMMIT= -P version_from_git.cmake
# NUMBER is a release if the commit has the tag vNUMBER and no file is modified; otherwise it is NUMBER-dev. COMMIT is
# for sources without a .git folder, as in a container.
cmake_minimum_required(VERSION 3.25)
string(TIMESTAMP date "%Y-%m-%d" UTC) # honours SOURCE_DATE_EPOCH
set(tags "")
set(modified "")
if(NOT COMMIT AND EXISTS ${SOURCE}/.git)
  find_program(GIT git)
  if(GIT)
    set(git ${GIT} --no-optional-locks -c safe.directory=* -C ${SOURCE})
    execute_process(COMMAND ${git} log -1 --format=%H/%cs
                    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(head MATCHES "^([0-9a-f]+)/([0-9-]+)$")
      set(COMMIT ${CMAKE_MATCH_1})
      set(date ${CMAKE_MATCH_2})
      execute_process(COMMAND ${git} tag --points-at HEAD OUTPUT_VARIABLE tags ERROR_QUIET)
      string(REPLACE "\n" ";" tags "${tags}")
      execute_process(COMMAND ${git} status --porcelain --untracked-files=no OUTPUT_VARIABLE modified ERROR_QUIET)
    endif()
  endif()
endif()
string(SUBSTRING "${COMMIT}" 0 12 short)
string(REPLACE "-" "" day ${date})

# Debian's versions sort 0.1.0~dev before 0.1.0, so that a release upgrades it.
set(number ${NUMBER}-dev)
set(debian ${NUMBER}~dev${day})
if(short)
  string(APPEND debian ".${short}")
endif()
if("v${NUMBER}" IN_LIST tags AND NOT modified)
  set(number ${NUMBER})
  set(debian ${NUMBER})
endif()
if(short AND modified)
  string(APPEND short ", modified")
endif()

file(CONFIGURE OUTPUT ${FOLDER}/version_values.hpp @ONLY CONTENT "#pragma once
#define KVMSERVER_VERSION \"@number@\"
#define KVMSERVER_COMMIT \"@short@\"
#define KVMSERVER_DATE \"@date@\"
")
file(CONFIGURE OUTPUT ${FOLDER}/version.cmake @ONLY CONTENT "set(KVMSERVER_VERSION \"@number@\")
set(KVMSERVER_DEBIAN_VERSION \"@debian@\")
set(KVMSERVER_COMMIT \"@COMMIT@\")
set(KVMSERVER_DATE \"@date@\")
")
